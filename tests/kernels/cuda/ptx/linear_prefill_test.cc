// The prefill path's PTX (packing rows, a weight's range, the linear kernels) against the fp64
// oracle, for every architecture. The emulator's tests run the same cases as C++, and more of them.
#include "kernels/cuda/linear_prefill.h"

#include <algorithm>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cuda/linear_prefill_rows.h"
#include "tests/kernels/cuda/prefill_choices.h"
#include "tests/kernels/cuda/ptx/kernel.h"

namespace deltad::cuda {
namespace {

class LinearPrefillPtxTest : public PtxFilesTest {
 protected:
  explicit LinearPrefillPtxTest(const std::string& arch)
      : PtxFilesTest(arch,
                     {"repack", "linear_prefill_range", "linear_prefill_rows", "linear_prefill"}),
        hopper_(arch == "sm_90a") {
    if (hopper_) files_.emplace_back(arch, "linear_prefill_sm_90a");
  }

  const bool hopper_;
};

class LinearPrefillPtx : public LinearPrefillPtxTest,
                         public testing::WithParamInterface<const char*> {
 protected:
  LinearPrefillPtx() : LinearPrefillPtxTest(GetParam()) {}
  std::vector<PrefillFamily> families() const {
    if (hopper_) return {PrefillFamily::kWgmma128, PrefillFamily::kWgmma256};
    return {PrefillFamily::kMma};
  }
};
INSTANTIATE_TEST_SUITE_P(Architecture, LinearPrefillPtx, testing::ValuesIn(ptx::kArchitectures));

// Some of the emulator's batches, others for each architecture.
TEST_P(LinearPrefillPtx, EqualsTheOracle) {
  const auto& all = ptx::kArchitectures;
  const auto arch =
      static_cast<size_t>(std::find(std::begin(all), std::end(all), GetParam()) - std::begin(all));
  const std::vector<Choice> choices = pairwise(3);
  const std::vector<PrefillFamily> of_arch = families();
  size_t turn = 0;  // every family under every schedule
  for (size_t i = arch; i < choices.size(); i += 8 * std::size(all), ++turn) {
    SCOPED_TRACE("choice " + std::to_string(i) + ": " + testing::PrintToString(choices[i]));
    schedule_ = ptx::schedules()[turn / of_arch.size() % ptx::schedules().size()];
    const PrefillFamily family = of_arch[turn % of_arch.size()];
    expect_prefill_choice(choices[i], family, static_cast<uint32_t>(i), launcher());
    if (HasFatalFailure()) return;
  }
}

TEST_P(LinearPrefillPtx, KeepsTheDelta) {
  for (PrefillFamily family : families()) {
    EXPECT_LE(prefill_delta_error(family, 0.01, 1, launcher()), 0.05);
    EXPECT_LE(prefill_delta_error(family, 1e-3, 1, launcher()), 0.05);
    // Small enough for the last of four levels to show.
    for (const int32_t levels : {2, 4}) {
      EXPECT_LE(prefill_delta_error(family, 0.03, levels, launcher()), 0.01) << levels;
    }
  }
}

// Batches that between them reach all of a kernel.
struct Batch {
  PrefillCase* c;
  std::vector<float> x;
  std::vector<RowGroup> groups;
  PrefillCase::Call call;
};

// What cannot show here; the emulator's tests see that it matters.
bool not_seen_here(const std::string& mutation) {
  const auto has = [&](const char* text) { return mutation.find(text) != std::string::npos; };
  // The copy engine sees an mbarrier's init anyway.
  if (has("fence.proxy.async")) return true;
  // Products read shared memory for the warp, not for each of its lanes.
  return has("bar.warp.sync");
}

// Where W and α·S are multiplied apart, a block is four turns, and nvcc gives each turn's A
// registers of its own: they are written again four turns later, and the wait of any turn between
// would do.
bool done_by_the_next(const std::string& mutation) {
  return mutation.find("wgmma.wait_group.sync.aligned 1") != std::string::npos;
}

// By architecture and the kernel's name.
class LinearPrefillPtxSites
    : public LinearPrefillPtxTest,
      public testing::WithParamInterface<std::tuple<const char*, std::string>> {
 protected:
  LinearPrefillPtxSites() : LinearPrefillPtxTest(std::get<0>(GetParam())) {}

  // Every mutation must show in a fault or in other bits.
  void expect_mutations_caught(const LinearPrefillKernel& linear, size_t at_least) {
    // More blocks of columns than stages, all of W's memory read; outputs that fill no block.
    PrefillCase full({{24}, 512}, 1, launcher()), gated({{40, 40}, 72, true}, 1, launcher());
    std::vector<int32_t> slots = {-1, -1}, gated_slots = {-1};
    if (linear.levels > 0) {
      // The second is multiplied apart.
      slots = {full.weight().add_variant(linear.levels, 2e-3),
               full.weight().add_variant(linear.levels, 2e-5)};
      gated_slots.push_back(gated.weight().add_variant(1, 1e-3));
    }
    std::vector<Batch> batches = {{&full,
                                   full.weight().random_rows(40),
                                   {{0, 3, -1}, {3, 36, slots[0]}, {36, 40, slots[1]}},
                                   {}},
                                  {&gated,
                                   gated.weight().random_rows(5),
                                   {{0, 5, gated_slots.back()}},
                                   {.epilogue = LinearPrefillEpilogue::kSiluGate}}};
    // By mma, tiles of few rows have a loop of their own.
    if (!hopper_) {
      batches.push_back({&full, full.weight().random_rows(2), {{0, 2, slots[0]}}, {}});
    }
    mutated_ = std::get<1>(GetParam());
    std::vector<std::vector<float>> right;
    PtxFile* file = file_of(mutated_);
    ASSERT_NE(file, nullptr);
    ptx::expect_mutations_caught(
        file->module(), mutated_, at_least,
        [&](const ptx::Options& options, ptx::Outcome& o) {
          options_ = options;
          outcome_ = {};
          std::vector<std::vector<float>> out;
          std::string fault;
          for (Batch& b : batches) {
            DecodeCase::Run run = b.c->run(b.x, b.groups, linear, b.call);
            if (!run.report.ok()) {
              fault = run.report.text();
              break;
            }
            out.push_back(std::move(run.out));
          }
          o = std::move(outcome_);
          if (!fault.empty()) return fault;
          if (right.empty()) right = out;
          return std::string(out == right ? "" : "other bits");
        },
        &not_seen_here, &done_by_the_next);
  }
};

std::vector<std::string> names(std::span<const LinearPrefillKernel> kernels) {
  std::vector<std::string> all;
  for (const LinearPrefillKernel& kernel : kernels) all.emplace_back(kernel.name);
  return all;
}
// A sample of wgmma's, whose PTX differs little and takes long.
INSTANTIATE_TEST_SUITE_P(Hopper, LinearPrefillPtxSites,
                         testing::Combine(testing::Values("sm_90a"),
                                          testing::Values("deltad_linear_prefill_r128",
                                                          "deltad_linear_prefill_r128_signs4",
                                                          "deltad_linear_prefill_r256_signs1")));
INSTANTIATE_TEST_SUITE_P(Ampere, LinearPrefillPtxSites,
                         testing::Combine(testing::Values("sm_80"),
                                          testing::ValuesIn(names(kLinearPrefillKernels))));
INSTANTIATE_TEST_SUITE_P(Blackwell, LinearPrefillPtxSites,
                         testing::Combine(testing::Values("sm_100"),
                                          testing::Values(kLinearPrefillKernels[1].name)));

TEST_P(LinearPrefillPtxSites, Matter) {
  std::vector<LinearPrefillKernel> all(std::begin(kLinearPrefillKernels),
                                       std::end(kLinearPrefillKernels));
  all.insert(all.end(), std::begin(kLinearPrefillHopperKernels),
             std::end(kLinearPrefillHopperKernels));
  for (const LinearPrefillKernel& kernel : all) {
    if (kernel.name == std::get<1>(GetParam())) expect_mutations_caught(kernel, 8);
  }
}

class PrefillRowsPtxSites : public LinearPrefillPtxSites {};
INSTANTIATE_TEST_SUITE_P(Architecture, PrefillRowsPtxSites,
                         testing::Combine(testing::ValuesIn(ptx::kArchitectures),
                                          testing::Values(kPrefillRowsKernel)));
TEST_P(PrefillRowsPtxSites, Matter) { expect_mutations_caught(kLinearPrefillKernels[0], 3); }

}  // namespace
}  // namespace deltad::cuda
