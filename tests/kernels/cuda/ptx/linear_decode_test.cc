// The decode path's PTX (repacking, bit planes, the linear kernel) against the fp64 oracle, for
// every architecture. The emulator's tests run the same cases as C++, and more of them.
#include "kernels/cuda/linear_decode.h"

#include "kernels/cuda/repack.h"
#include "kernels/cuda/sign_planes.h"
#include "tests/kernels/cuda/decode_case.h"
#include "tests/kernels/cuda/decode_choices.h"
#include "tests/kernels/cuda/linear_rotary_case.h"
#include "tests/kernels/cuda/overlapping.h"
#include "tests/kernels/cuda/ptx/kernel.h"

namespace deltad::cuda {

extern "C" void deltad_rope_append(RopeAppendParams p);

namespace {

class LinearDecodePtxTest : public PtxFilesTest {
 protected:
  explicit LinearDecodePtxTest(const char* arch)
      : PtxFilesTest(arch, {"repack", "sign_planes", "linear_decode"}) {}
};

class LinearDecodePtx : public LinearDecodePtxTest,
                        public testing::WithParamInterface<const char*> {
 protected:
  LinearDecodePtx() : LinearDecodePtxTest(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Architecture, LinearDecodePtx, testing::ValuesIn(ptx::kArchitectures));

// The emulator's batches, a third for each architecture; all of them on a card.
TEST_P(LinearDecodePtx, EqualsTheOracle) {
  const Share share = share_of(GetParam());
  const std::vector<Choice> choices = pairwise(8);
  for (size_t i = share.first; i < choices.size(); i += share.step) {
    SCOPED_TRACE("choice " + std::to_string(i) + ": " + testing::PrintToString(choices[i]));
    schedule_ = ptx::schedules()[i % ptx::schedules().size()];
    expect_choice(choices[i], static_cast<uint32_t>(i), launcher());
    if (HasFatalFailure()) return;
  }
}

TEST_P(LinearDecodePtx, TakesMoreGroupsThanAWarpReadsAtOnce) { expect_many_groups(launcher()); }

// The epilogue with rotary embedding gives the bits of the kernel that has it alone.
TEST_P(LinearDecodePtx, RotatesAsRopeAppend) {
  for (const int32_t head_dim : {64, 96, 128}) {
    LinearRotaryCase c(2, 1, head_dim, 600, 1, launcher());
    emulator::Report report;
    ASSERT_EQ(c.prepare(1, launch_overlapping(deltad_rope_append, {}, &report)), "");
    const auto got = c.run(1, {}, &report);
    ASSERT_TRUE(report.ok()) << report.text();
    EXPECT_TRUE(got == c.want) << "heads of " << head_dim;
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
  if (has("in_bounds(chunk + 1 < block.chunk1)) activations")) return true;
  // Asked anew before the sums are laid out, where a warp without a tile leaves what nobody reads;
  // asked before the copies, it shows.
  if (has("active = in_bounds(tile")) return true;
  // Rows beyond the block's, of which nothing is stored; too many of them, with levels enough,
  // would overflow the list of pieces.
  if (has("in_bounds(lane < rows)")) return true;
  // Fewer chunks that L2 is asked for: that costs time alone. More of them show.
  if (has("in_bounds(block.chunk0 + i < block.chunk1)) return")) {
    return has(has("setp.ge") ? "(true)" : "(false)");
  }
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
  DecodeCase middle({{72}, 1300}, 1, launcher()), gated({{40, 40}, 520, true}, 1, launcher());
  std::vector<int32_t> full_slots = {-1}, slots = {-1}, gated_slots = {-1};
  if (levels > 0) {
    full_slots = {middle.add_variant(levels, 2e-3), middle.add_variant(levels, 2e-3)};
    slots = {-1, full_slots[0], middle.add_variant(levels - 1, 2e-3), full_slots[1]};
    gated_slots = {-1, gated.add_variant(levels, 1e-3)};
  }
  const int32_t part = block_rows - 3, more = block_rows + 3;
  std::vector<Batch> batches = {
      // Each row a group of its own, so that each row's code is reached; then with a base.
      {&middle, middle.random_rows(block_rows), single_rows(block_rows, full_slots), {}},
      {&middle, middle.random_rows(part), single_rows(part, slots), {.splits = 2}},
      // Few rows in a block of their own.
      {&gated,
       gated.random_rows(more),
       {{0, more, gated_slots.back()}},
       {.epilogue = LinearEpilogue::kSiluGate}},
  };
  // Weights of their own, one larger than the base, in as many tiles of rows as may be.
  DecodeCase headed({{24}, 600}, 1, launcher());
  const int32_t large = headed.add_dense(72, levels, 2e-3), small = headed.add_dense(16);
  const std::vector<float> zeros(static_cast<size_t>(80 * part), 0.0f);
  batches.push_back(
      {&headed,
       headed.random_rows(part),
       {{0, 2, -1}, {2, part - 3, large}, {part - 3, part, small}},
       {.epilogue = LinearEpilogue::kAddResidual, .initial = &zeros, .spare_tiles = 1}});
  LinearRotaryCase rotary(1, 1, 80, 200, levels, launcher(), part);
  mutated_ = name;
  PtxFile* linear = file_of(name);
  ASSERT_NE(linear, nullptr);
  std::vector<std::vector<float>> right;
  ptx::expect_mutations_caught(
      linear->module(), name, 20,
      [&](const ptx::Options& options, ptx::Outcome& o) {
        options_ = options;
        outcome_ = {};
        std::vector<std::vector<float>> out;
        std::string fault = run(batches, out);
        if (fault.empty()) {
          emulator::Report report;
          const auto got = rotary.run(1, {}, &report);
          out.push_back(got.qkv);
          out.emplace_back(got.cache.begin(), got.cache.end());
          if (!report.ok()) fault = report.text();
        }
        o = std::move(outcome_);
        if (!fault.empty()) return fault;
        if (right.empty()) right = out;
        return std::string(out == right ? "" : "other bits");
      },
      &not_seen_here);
}

}  // namespace
}  // namespace deltad::cuda
