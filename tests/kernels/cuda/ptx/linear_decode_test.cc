// The decode path's PTX (repacking, bit planes, the linear kernel) against the fp64 oracle, for
// every architecture. The emulator's tests run the same cases as C++, and more of them.
#include "kernels/cuda/linear_decode.h"

#include "kernels/cuda/repack.h"
#include "kernels/cuda/sign_planes.h"
#include "tests/kernels/cuda/decode_case.h"
#include "tests/kernels/cuda/ptx/kernel.h"

namespace deltad::cuda {
namespace {

int32_t slot_of(const std::vector<RowGroup>& groups, int32_t row) {
  for (const RowGroup& group : groups) {
    if (row < group.end_row) return group.slot;
  }
  return -1;
}

// What is wrong with the outputs of all rows; "" if nothing is.
std::string wrong(const DecodeCase& c, const std::vector<float>& x,
                  const std::vector<RowGroup>& groups, const std::vector<float>& out) {
  const auto outputs = static_cast<size_t>(c.shape().outputs());
  for (int32_t row = 0; row < groups.back().end_row; ++row) {
    const auto want = c.expected(x.data() + static_cast<ptrdiff_t>(row) * c.shape().columns,
                                 slot_of(groups, row));
    for (size_t o = 0; o < outputs; ++o) {
      const double got = out.at(static_cast<size_t>(row) * outputs + o);
      if (!(std::abs(got - want.y[o]) <= want.error[o])) {
        return "row " + std::to_string(row) + " output " + std::to_string(o) + " is " +
               std::to_string(got) + ", not " + std::to_string(want.y[o]);
      }
    }
  }
  return "";
}

struct Shape {
  const char* name;
  int32_t m;
  WeightShape weight;
  int32_t variants, levels;
};
const Shape kShapes[] = {
    {"qkv", 14, {{48, 16, 16}, 576}, 14, 1}, {"gate", 33, {{32, 32}, 576, true}, 2, 1},
    {"down", 7, {{24}, 1536}, 3, 2},         {"ragged", 31, {{70, 10}, 300}, 6, 2},
    {"short", 3, {{20}, 9}, 2, 2},           {"base", 5, {{64}, 1000}, 0, 0},
    {"long", 2, {{16}, 8192}, 1, 2},
};

class LinearDecodePtxTest : public testing::Test {
 protected:
  explicit LinearDecodePtxTest(const char* arch)
      : repack_(arch, "repack"), planes_(arch, "sign_planes"), linear_(arch, "linear_decode") {}

  // Runs a kernel from whichever file has it; keeps the outcome.
  Launcher launcher() {
    return [this](const char* kernel, const Launch& shape, std::span<const std::byte> params,
                  const emulator::Options& emulated) {
      emulator::Report report;
      for (PtxFile* file : {&repack_, &planes_, &linear_}) {
        if (!file->has(kernel)) continue;
        const bool mutated = kernel == mutated_;
        ptx::Outcome o = file->run(kernel, shape, params, mutated ? options_ : schedule_,
                                   emulated.overlaps_previous);
        if (o.fault) {
          report.faults.push_back({emulator::FaultKind::kOther, {}, 0, {}, o.fault->text()});
        }
        if (mutated) outcome_.add(std::move(o));
        return report;
      }
      ADD_FAILURE() << "no PTX has the kernel " << kernel;
      return report;
    };
  }

  PtxFile repack_, planes_, linear_;
  ptx::Options schedule_, options_;
  std::string mutated_;   // this kernel runs with options_, the others with schedule_
  ptx::Outcome outcome_;  // of all its launches
};

class LinearDecodePtx : public LinearDecodePtxTest,
                        public testing::WithParamInterface<const char*> {
 protected:
  LinearDecodePtx() : LinearDecodePtxTest(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Architecture, LinearDecodePtx, testing::ValuesIn(ptx::kArchitectures));

TEST_P(LinearDecodePtx, EqualsTheOracle) {
  size_t turn = 0;
  for (const Shape& s : kShapes) {
    schedule_ = ptx::schedules()[turn++ % ptx::schedules().size()];
    DecodeCase c(s.weight, 1, launcher());
    std::vector<int32_t> slots = {-1};
    for (int32_t v = 0; v < s.variants; ++v) {
      slots.push_back(c.add_variant(v == 1 ? 0 : s.levels - v % 2 * (s.levels - 1), 0.01, v == 2));
    }
    std::mt19937 random(3);
    const std::vector<float> x = c.random_rows(s.m);
    const std::vector<RowGroup> groups = random_groups(s.m, slots, random);
    const DecodeCase::Run run = c.run(x, groups);
    ASSERT_TRUE(run.report.ok()) << s.name << ": " << run.report.text();
    EXPECT_EQ(wrong(c, x, groups, run.out), "") << s.name;
  }
}

// A kernel of the decode path, and batches that between them reach all of it.
struct Batch {
  DecodeCase* c;
  std::vector<float> x;
  std::vector<RowGroup> groups;
  DecodeCase::Call call;
};

// Rows of `slots` in turn, each a group of its own.
std::vector<RowGroup> single_rows(int32_t m, const std::vector<int32_t>& slots) {
  std::vector<RowGroup> groups;
  for (int32_t r = 0; r < m; ++r) {
    groups.push_back({r, r + 1, slots[static_cast<size_t>(r) % slots.size()]});
  }
  return groups;
}

// What cannot show here; the emulator's tests see that it matters.
bool not_seen_here(const std::string& mutation) {
  auto has = [&](const char* text) { return mutation.find(text) != std::string::npos; };
  // One chunk's activations more: columns beyond the last are not read (in_bounds of the column).
  if (has("in_bounds(block.chunk0 + 1 < block.chunk1)")) return true;
  if (has("in_bounds(chunk + 2 < block.chunk1)")) return true;
  // Orders stores to device memory before they are announced to other blocks: the interpreter's
  // memory has one order, in which they are seldom late.
  return has("linear_finish.h") && has("bar.sync 0 (skipped)");
}

// By architecture and number of the kernel.
class LinearDecodePtxSites : public LinearDecodePtxTest,
                             public testing::WithParamInterface<std::tuple<const char*, size_t>> {
 protected:
  LinearDecodePtxSites() : LinearDecodePtxTest(std::get<0>(GetParam())) {}

  // What `batches` give, or the fault.
  std::string run(std::vector<Batch>& batches, std::vector<std::vector<float>>& out) {
    for (Batch& b : batches) {
      DecodeCase::Run run = b.c->run(b.x, b.groups, b.call);
      if (!run.report.ok()) return run.report.text();
      out.push_back(std::move(run.out));
    }
    return "";
  }
};
// All kernels as sm_90a, the others as a sample: their PTX differs little.
INSTANTIATE_TEST_SUITE_P(Hopper, LinearDecodePtxSites,
                         testing::Combine(testing::Values("sm_90a"),
                                          testing::Range(size_t{0}, std::size(kLinearKernels))));
INSTANTIATE_TEST_SUITE_P(Others, LinearDecodePtxSites,
                         testing::Combine(testing::Values("sm_80", "sm_100"),
                                          testing::Values(size_t{1})));

// Every mutation must show in a fault or in other bits.
TEST_P(LinearDecodePtxSites, Matter) {
  const auto [name, block_rows, levels] = kLinearKernels[std::get<1>(GetParam())];
  DecodeCase middle({{72}, 2900}, 1, launcher()), gated({{40, 40}, 520, true}, 1, launcher());
  std::vector<int32_t> full_slots = {-1}, slots = {-1}, gated_slots = {-1};
  if (levels > 0) {
    full_slots = {middle.add_variant(levels, 2e-3), middle.add_variant(levels, 2e-3)};
    slots = {-1, full_slots[0], middle.add_variant(levels - 1, 2e-3), full_slots[1]};
    gated_slots = {-1, gated.add_variant(levels, 1e-3)};
  }
  const int32_t part = block_rows - 3;
  std::vector<Batch> batches = {
      // Each row a group of its own, so that each row's code is reached; then with a base.
      {&middle, middle.random_rows(block_rows), single_rows(block_rows, full_slots), {}},
      {&middle, middle.random_rows(part), single_rows(part, slots), {.splits = 2}},
      {&gated,
       gated.random_rows(part),
       {{0, part, gated_slots.back()}},
       {.epilogue = LinearEpilogue::kSiluGate}},
  };
  mutated_ = name;
  std::vector<std::vector<float>> right;
  ptx::expect_mutations_caught(
      linear_.module(), name, 20,
      [&](const ptx::Options& options, ptx::Outcome& o) {
        options_ = options;
        outcome_ = {};
        std::vector<std::vector<float>> out;
        const std::string fault = run(batches, out);
        o = std::move(outcome_);
        if (!fault.empty()) return fault;
        if (right.empty()) right = out;
        return std::string(out == right ? "" : "other bits");
      },
      &not_seen_here);
}

}  // namespace
}  // namespace deltad::cuda
