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
    if (hopper_) {
      return {PrefillFamily::kWgmma128, PrefillFamily::kWgmma256, PrefillFamily::kWgmma192};
    }
    return {PrefillFamily::kMma};
  }
};
INSTANTIATE_TEST_SUITE_P(Architecture, LinearPrefillPtx, testing::ValuesIn(ptx::kArchitectures));

// Some of the emulator's batches, others for each architecture; all of them on a card.
TEST_P(LinearPrefillPtx, EqualsTheOracle) {
  const Share share = share_of(GetParam(), 8);
  const std::vector<Choice> choices = pairwise(3);
  const std::vector<PrefillFamily> of_arch = families();
  size_t turn = 0;  // every family under every schedule
  for (size_t i = share.first; i < choices.size(); i += share.step, ++turn) {
    SCOPED_TRACE("choice " + std::to_string(i) + ": " + testing::PrintToString(choices[i]));
    schedule_ = ptx::schedules()[turn / of_arch.size() % ptx::schedules().size()];
    const PrefillFamily family = of_arch[turn % of_arch.size()];
    expect_prefill_choice(choices[i], family, static_cast<uint32_t>(i), launcher());
    if (HasFatalFailure()) return;
  }
}

TEST_P(LinearPrefillPtx, EqualsTheOracleForManyLongRows) {
  for (PrefillFamily family : families()) expect_many_long_rows(family, 4096, launcher());
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
  PrefillCase::Call call = {};
  int32_t cluster = 1;  // blocks
};

// What cannot show here; the emulator's tests see that it matters.
bool not_seen_here(const std::string& mutation) {
  const auto has = [&](const char* text) { return mutation.find(text) != std::string::npos; };
  // Products read shared memory for the warp, not for each of its lanes.
  if (has("bar.warp.sync")) return true;
  // That some of a block's signs are multiplied apart chooses between loops that do the same.
  return has("setp.ne") && has("(true)") && has("load_global(p.apart");
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
    PrefillCase full({{64, 16}, 512}, 1, launcher()), gated({{40, 40}, 72, true}, 1, launcher());
    int32_t beside = -1, of_gated = -1;
    if (linear.levels > 0) {
      beside = full.weight().add_variant(linear.levels, 2e-3);
      of_gated = gated.weight().add_variant(1, 1e-3);
    }
    std::vector<Batch> batches = {{&gated,
                                   gated.weight().random_rows(5),
                                   {{0, 2, -1}, {2, 5, of_gated}},
                                   {.epilogue = LinearPrefillEpilogue::kSiluGate}},
                                  {&full, full.weight().random_rows(40), {{0, 40, beside}}}};
    // In a cluster: a block that has no outputs copies for the other. By mma, tiles of few rows
    // have a loop of their own.
    const int32_t cluster = std::min(2, linear.most_cluster);
    batches[1].cluster = cluster;
    batches.push_back({&full, full.weight().random_rows(2), {{0, 2, beside}}});
    // One warpgroup's outputs are multiplied apart, or the other's: both have loops of their own.
    for (size_t part = 0; linear.levels > 0 && part < 2; ++part) {
      const int32_t slot = full.weight().add_variant(linear.levels, 2e-3);
      full.weight().scale_alpha(slot, part, 0.01f);
      batches.push_back({&full, full.weight().random_rows(2), {{0, 2, slot}}});
      if (cluster > 1) batches.push_back(batches.back());
      batches.back().cluster = cluster;
    }
    mutated_ = std::get<1>(GetParam());
    // A row's largest value is its last, and no other comes near: packing has to look at all of it.
    if (mutated_ == kPrefillRowsKernel) {
      for (Batch& b : batches) {
        const auto columns = static_cast<size_t>(b.c->weight().shape().columns);
        for (size_t end = columns; end <= b.x.size(); end += columns) b.x[end - 1] = 4096;
      }
    }
    PtxFile* file = file_of(mutated_);
    ASSERT_NE(file, nullptr);
    std::vector<std::vector<float>> right;  // of each batch
    std::vector<ptx::Outcome> reached(batches.size());
    ptx::expect_mutations_caught(
        file->module(), mutated_, at_least,
        [&](const ptx::Options& options, ptx::Outcome& o) {
          options_ = options;
          o = {};
          // What no run can notice would be looked for in all of them.
          if (options.mutation && not_seen_here(options.mutation->text))
            return std::string("exempt");
          std::string wrong;
          for (size_t i = 0; i < batches.size() && wrong.empty(); ++i) {
            // Batches take long: only those to which the mutation can matter, until one shows it.
            if (options.mutation && !reached[i].exercises(*options.mutation)) continue;
            outcome_ = {};
            const Batch& b = batches[i];
            LinearPrefillKernel kernel = linear;
            kernel.cluster = b.cluster;
            const DecodeCase::Run run = b.c->run(b.x, b.groups, kernel, b.call);
            if (!options.mutation) reached[i].add(outcome_);
            o.add(std::move(outcome_));
            wrong = run.report.ok() ? "" : run.report.text();
            if (right.size() == i) right.push_back(run.out);
            if (wrong.empty() && run.out != right[i]) wrong = "other bits";
          }
          return wrong;
        },
        nullptr, &done_by_the_next);
  }
};

std::string sites_name(const testing::TestParamInfo<LinearPrefillPtxSites::ParamType>& info) {
  return std::get<0>(info.param) + ("_" + std::get<1>(info.param));
}
std::vector<std::string> names(std::span<const LinearPrefillKernel> kernels) {
  std::vector<std::string> all;
  for (const LinearPrefillKernel& kernel : kernels) all.emplace_back(kernel.name);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Hopper, LinearPrefillPtxSites,
                         testing::Combine(testing::Values("sm_90a"),
                                          testing::ValuesIn(names(kLinearPrefillHopperKernels))),
                         sites_name);
INSTANTIATE_TEST_SUITE_P(Ampere, LinearPrefillPtxSites,
                         testing::Combine(testing::Values("sm_80"),
                                          testing::ValuesIn(names(kLinearPrefillKernels))),
                         sites_name);
INSTANTIATE_TEST_SUITE_P(Blackwell, LinearPrefillPtxSites,
                         testing::Combine(testing::Values("sm_100"),
                                          testing::Values(kLinearPrefillKernels[1].name)),
                         sites_name);

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
                                          testing::Values(kPrefillRowsKernel)),
                         sites_name);
TEST_P(PrefillRowsPtxSites, Matter) { expect_mutations_caught(kLinearPrefillKernels[0], 3); }

}  // namespace
}  // namespace deltad::cuda
