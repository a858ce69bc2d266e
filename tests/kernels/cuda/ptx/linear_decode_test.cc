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

class LinearDecodePtx : public testing::TestWithParam<const char*> {
 protected:
  // Runs a kernel from whichever file has it; keeps the outcome.
  Launcher launcher() {
    return [this](const char* kernel, const Launch& shape, std::span<const std::byte> params,
                  const emulator::Options&) {
      emulator::Report report;
      for (PtxFile* file : {&repack_, &planes_, &linear_}) {
        if (!file->has(kernel)) continue;
        outcome_ = file->run(kernel, shape, params, kernel == mutated_ ? options_ : schedule_);
        if (outcome_.fault) {
          report.faults.push_back({emulator::FaultKind::kOther, {}, 0, {}, outcome_.fault->text()});
        }
        return report;
      }
      ADD_FAILURE() << "no PTX has the kernel " << kernel;
      return report;
    };
  }

  PtxFile repack_{GetParam(), "repack"}, planes_{GetParam(), "sign_planes"},
      linear_{GetParam(), "linear_decode"};
  ptx::Options schedule_, options_;
  std::string mutated_;  // this kernel runs with options_, the others with schedule_
  ptx::Outcome outcome_;
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

// Takes away each barrier, wait and bound of a kernel. Two calls: with splits, then gated without.
TEST_P(LinearDecodePtx, EveryBarrierWaitAndBoundIsNeeded) {
  DecodeCase c({{40, 40}, 1290, true}, 1, launcher());
  const std::vector<int32_t> slots = {c.add_variant(1, 1), c.add_variant(1, 1)};
  const std::vector<float> x = c.random_rows(5);
  const std::vector<RowGroup> groups = {{0, 1, -1}, {1, 4, slots[0]}, {4, 5, slots[1]}};
  mutated_ = kLinearDecodeKernels[0][1];
  ptx::expect_mutations_caught(
      linear_.module(), mutated_, 20, [&](const ptx::Options& options, ptx::Outcome& o) {
        options_ = options;
        const DecodeCase::Run run = c.run(x, groups, {.splits = 2});
        o = outcome_;
        return run.report.ok() ? wrong(c, x, groups, run.out) : run.report.text();
      });
}

}  // namespace
}  // namespace deltad::cuda
