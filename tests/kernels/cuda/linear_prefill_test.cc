// The prefill kernels on the emulator against the fp64 oracle, over awkward shapes.
#include "kernels/cuda/linear_prefill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/cuda/mutations.h"
#include "tests/kernels/cuda/part_of_groups.h"
#include "tests/kernels/cuda/prefill_choices.h"

namespace deltad::cuda {
namespace {

using emulator::Options;
using emulator::Order;

std::string family_name(PrefillFamily family) {
  constexpr const char* names[] = {"mma", "wgmma128", "wgmma256", "wgmma192"};
  return names[static_cast<size_t>(family)];
}

constexpr size_t kShares = 6;
#if defined(DELTAD_FEW_BATCHES)
constexpr size_t kStep = 5 * kShares;
#else
constexpr size_t kStep = kShares;
#endif
class LinearPrefillShare : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Shares, LinearPrefillShare, testing::Range(size_t{0}, kShares));

// mma and all kinds of wgmma take turns.
TEST_P(LinearPrefillShare, EqualsTheOracle) {
  const std::vector<Choice> choices = pairwise(3);
  for (size_t i = GetParam(); i < choices.size(); i += kStep) {
    if (repeats_another(choices[i])) continue;
    const auto family = static_cast<PrefillFamily>(i / kShares % 4);
    SCOPED_TRACE(family_name(family) + ", choice " + std::to_string(i) + ": " +
                 testing::PrintToString(choices[i]));
    expect_prefill_choice(choices[i], family, static_cast<uint32_t>(i));
    if (HasFatalFailure()) return;
  }
}

TEST(LinearPrefillLongRows, EqualTheOracle) {
  expect_many_long_rows(PrefillFamily::kMma, 28672);
  expect_many_long_rows(PrefillFamily::kWgmma128, 14336);
  expect_many_long_rows(PrefillFamily::kWgmma256, 8192);
  expect_many_long_rows(PrefillFamily::kWgmma192, 4096);
}

class LinearPrefill : public testing::TestWithParam<PrefillFamily> {
 protected:
  static LinearPrefillKernel kernel(int32_t levels) { return prefill_kernel(GetParam(), levels); }
};
INSTANTIATE_TEST_SUITE_P(Families, LinearPrefill,
                         testing::Values(PrefillFamily::kMma, PrefillFamily::kWgmma128,
                                         PrefillFamily::kWgmma256),
                         [](const auto& family) { return family_name(family.param); });

// Blocks of outputs and of columns that are not full, variants of no, one, two and four levels.
struct Middle {
  Middle() : c({{152}, 360}) {
    a = c.weight().add_variant(2, 2e-4);
    b = c.weight().add_variant(1, 2e-5);  // multiplied apart
    d = c.weight().add_variant(4, 2e-3, true);
    none = c.weight().add_variant(0, 0);
  }
  PrefillCase c;
  int32_t a, b, d, none;
};

// In windows: other tiles, other places in them, other neighbours, other kernels.
TEST_P(LinearPrefill, RowsAreTheSameBitsForEveryNumberAndNeighbour) {
  Middle m;
  constexpr int32_t kRows = 512;
  const std::vector<float> x = m.c.weight().random_rows(kRows);
  const std::vector<RowGroup> groups = {
      {0, 40, -1}, {40, 41, m.a}, {41, 230, m.b}, {230, 239, m.none}, {239, 512, m.d}};
  const DecodeCase::Run all = m.c.run(x, groups, kernel(4));
  ASSERT_TRUE(all.report.ok()) << all.report.text();
  const auto columns = static_cast<ptrdiff_t>(m.c.weight().shape().columns);
  const auto outputs = static_cast<ptrdiff_t>(m.c.weight().shape().outputs());
  for (int32_t width : {1, 2, 5, 8, 16, 17, 31, 32, 33, 64, 129}) {
    const int32_t first = (37 * width) % (kRows - width);
    const RowGroups table = part_of_groups(groups, first, first + width);
    const std::vector<RowGroup> some(table.group, table.group + table.count);
    int32_t levels = 0;
    for (const RowGroup& group : some) {
      levels = std::max(levels, group.slot == m.d ? 4 : group.slot == m.a ? 2 : group.slot == m.b);
    }
    const DecodeCase::Run window = m.c.run(
        {x.begin() + first * columns, x.begin() + (first + width) * columns}, some, kernel(levels));
    ASSERT_TRUE(window.report.ok()) << window.report.text();
    EXPECT_TRUE(std::equal(window.out.begin(), window.out.end(), all.out.begin() + first * outputs))
        << width << " rows from " << first;
  }
}

// Outputs 64 … 127 are multiplied apart: half of a block of 128, a third of one of 192.
TEST(LinearPrefillRows, AreTheSameBitsInTilesOfEverySize) {
  PrefillCase c({{64, 64, 72}, 360});
  const int32_t v = c.weight().add_variant(1, 1e-3);
  c.weight().scale_alpha(v, 1, 0.01f);
  ASSERT_EQ(c.apart(v), (std::vector<uint8_t>{0, 1, 0, 0}));
  const std::vector<float> x = c.weight().random_rows(180);
  const std::vector<RowGroup> groups = {{0, 20, -1}, {20, 180, v}};
  const auto run = [&](PrefillFamily family) {
    const DecodeCase::Run run = c.run(x, groups, prefill_kernel(family, 1));
    EXPECT_TRUE(run.report.ok()) << run.report.text();
    return run.out;
  };
  const std::vector<float> out = run(PrefillFamily::kWgmma128);
  EXPECT_EQ(run(PrefillFamily::kWgmma256), out);
  EXPECT_EQ(run(PrefillFamily::kWgmma192), out);
}

// Rows of several variants in whole tiles and ragged ones, more blocks of columns than stages, and
// outputs that fill no block. Blocks of a cluster do not all multiply apart, so some wait for
// others.
TEST(LinearPrefillClusters, GiveTheSameBits) {
  const auto expect_same = [](PrefillFamily family, int32_t outputs,
                              std::initializer_list<int32_t> clusters) {
    PrefillCase c({{128, outputs - 128}, 328});
    const int32_t v = c.weight().add_variant(1, 1e-3), w = c.weight().add_variant(1, 1e-3);
    c.weight().scale_alpha(v, 1, 0.01f);
    const std::vector<float> x = c.weight().random_rows(150);
    const std::vector<RowGroup> groups = {{0, 1, -1}, {1, 8, w}, {8, 150, v}};
    LinearPrefillKernel kernel = prefill_kernel(family, 1);
    const DecodeCase::Run alone = c.run(x, groups, kernel);
    ASSERT_TRUE(alone.report.ok()) << alone.report.text();
    for (const int32_t cluster : clusters) {
      kernel.cluster = cluster;
      for (const Order order : {Order::kFifo, Order::kLifo, Order::kRandom}) {
        const Options options = {.order = order, .seed = 5, .resident_blocks = 4};
        const DecodeCase::Run run = c.run(x, groups, kernel, {.options = options});
        ASSERT_TRUE(run.report.ok()) << "clusters of " << cluster << ": " << run.report.text();
        EXPECT_EQ(run.out, alone.out) << "clusters of " << cluster;
      }
    }
  };
  expect_same(PrefillFamily::kWgmma128, 504, {2, 4});
  expect_same(PrefillFamily::kWgmma256, 248, {2});
  expect_same(PrefillFamily::kWgmma192, 376, {2, 4});  // two blocks without outputs
}

TEST(LinearPrefillClusters, OfEightBlocks) {
  PrefillCase c({{1016}, 328});
  const int32_t v = c.weight().add_variant(1, 1e-3);
  const std::vector<float> x = c.weight().random_rows(9);
  LinearPrefillKernel kernel = prefill_kernel(PrefillFamily::kWgmma128, 1);
  const DecodeCase::Run alone = c.run(x, {{0, 9, v}}, kernel);
  kernel.cluster = 8;
  const DecodeCase::Run run = c.run(x, {{0, 9, v}}, kernel);
  ASSERT_TRUE(run.report.ok()) << run.report.text();
  EXPECT_EQ(run.out, alone.out);
}

TEST_P(LinearPrefill, RowsAreTheSameBitsInEveryOrderOfThreadsAndBlocks) {
  Middle m;
  const std::vector<float> x = m.c.weight().random_rows(18);
  const std::vector<RowGroup> groups = {{0, 3, -1}, {3, 9, m.a}, {9, 18, m.b}};
  const DecodeCase::Run first = m.c.run(x, groups, kernel(2));
  ASSERT_TRUE(first.report.ok()) << first.report.text();
  for (Order order : {Order::kLifo, Order::kRandom}) {
    const Options options = {.order = order, .seed = 7, .resident_blocks = 3};
    const DecodeCase::Run again = m.c.run(x, groups, kernel(2), {.options = options});
    ASSERT_TRUE(again.report.ok()) << again.report.text();
    EXPECT_EQ(again.out, first.out);
  }
}

TEST_P(LinearPrefill, AddsTheResidual) {
  Middle m;
  const std::vector<float> x = m.c.weight().random_rows(6);
  const std::vector<RowGroup> groups = {{0, 2, -1}, {2, 6, m.a}};
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> residual(static_cast<size_t>(6 * m.c.weight().shape().outputs()));
  for (float& v : residual) v = normal(random);
  const DecodeCase::Run plain = m.c.run(x, groups, kernel(2));
  const DecodeCase::Run added =
      m.c.run(x, groups, kernel(2),
              {.epilogue = LinearPrefillEpilogue::kAddResidual, .initial = &residual});
  ASSERT_TRUE(added.report.ok()) << added.report.text();
  for (size_t i = 0; i < residual.size(); ++i) EXPECT_EQ(added.out[i], residual[i] + plain.out[i]);
}

// The 5 % rule: where fp16 would lose more of α beside W, it is multiplied apart.
TEST_P(LinearPrefill, KeepsTheDelta) {
  for (const DeltaBound& at : kPrefillDeltaBounds) {
    EXPECT_LE(prefill_delta_error(GetParam(), at.alpha), at.bound) << "alpha " << at.alpha;
  }
}

// Parts one after the other, and such as take turns within a warp's outputs: one with an α of 10 %
// of mean |W|, which fp16 keeps, one with a hundredth of it, of which it would lose 29 %. The mean
// of both says that nothing is lost.
TEST_P(LinearPrefill, KeepsTheDeltaOfEveryPart) {
  for (const bool interleaved : {false, true}) {
    PrefillCase c({{64, 64}, 512, interleaved}, 5);
    const int32_t v = c.weight().add_variant(1, 2e-3);
    c.weight().scale_alpha(v, 1, 0.01f);
    EXPECT_EQ(c.apart(v), (std::vector<uint8_t>{interleaved, 1}));
    for (const double error : prefill_part_errors(c, v, kernel(1))) EXPECT_LE(error, 0.05);
  }
}

// Beside W and apart, so that the last level's signs, were they lost, would show.
TEST_P(LinearPrefill, KeepsTheDeltaOfEveryLevel) {
  for (const int32_t levels : {2, 3, 4}) {
    for (const double alpha : {0.03, 1e-3}) {
      EXPECT_LE(prefill_delta_error(GetParam(), alpha, levels), 0.01)
          << levels << " levels, alpha " << alpha;
    }
  }
}

// Batches that between them reach every site and what hangs on it.
TEST_P(LinearPrefill, SitesMatter) {
  // Two blocks of outputs, the last not full, by wgmma in a cluster; more stages than there are; a
  // last tile that ends with the memory of W and of the signs.
  PrefillCase wide({{152}, 512}), gated({{40, 40}, 520, true}), narrow({{16}, 40});
  const int32_t a = wide.weight().add_variant(2, 2e-3), b = wide.weight().add_variant(1, 2e-5);
  const int32_t g = gated.weight().add_variant(1, 1e-3), n = narrow.weight().add_variant(1, 1e-3);
  struct Batch {
    PrefillCase& c;
    std::vector<float> x;
    std::vector<RowGroup> groups;
    LinearPrefillKernel kernel;
    LinearPrefillEpilogue epilogue;
  };
  std::vector<Batch> batches = {{wide,
                                 wide.weight().random_rows(45),
                                 {{0, 3, -1}, {3, 40, a}, {40, 45, b}},
                                 kernel(2),
                                 LinearPrefillEpilogue::kStore},
                                {gated,
                                 gated.weight().random_rows(11),
                                 {{0, 2, -1}, {2, 11, g}},
                                 kernel(1),
                                 LinearPrefillEpilogue::kSiluGate},
                                {narrow,
                                 narrow.weight().random_rows(1),
                                 {{0, 1, n}},
                                 kernel(1),
                                 LinearPrefillEpilogue::kStore}};
  batches[0].kernel.cluster = std::min(2, batches[0].kernel.most_cluster);
  expect_every_site_matters([&](const Options& options, emulator::Report* report) {
    std::vector<std::vector<float>> out;
    for (Batch& batch : batches) {
      DecodeCase::Run run = batch.c.run(batch.x, batch.groups, batch.kernel,
                                        {.epilogue = batch.epilogue, .options = options});
      out.push_back(std::move(run.out));
      report->sites.insert(report->sites.end(), run.report.sites.begin(), run.report.sites.end());
      if (!run.report.ok()) {
        report->faults = std::move(run.report.faults);
        break;
      }
    }
    return out;
  });
}

// Banks never conflict; W and the signs come once for each tile of rows, the rows' tiles once for
// each block of outputs.
TEST_P(LinearPrefill, AccessesAreWithoutConflicts) {
  PrefillCase c({{128}, 512});
  const int32_t v = c.weight().add_variant(1, 1e-3);
  const std::vector<float> x = c.weight().random_rows(40);
  const DecodeCase::Run run =
      c.run(x, {{0, 40, v}}, kernel(1), {.options = {.count_accesses = true}});
  ASSERT_TRUE(run.report.ok()) << run.report.text();
  uint64_t base = 0;
  for (const emulator::AccessCount& count : run.report.accesses) {
    // wgmma reads 16 bytes at a time here, which says nothing of the hardware's banks.
    if (!count.text().starts_with("linear_prefill_sm_90a.cu")) {
      EXPECT_EQ(count.conflicts(), 0u) << count.text();
    }
    if (count.kind == emulator::AccessKind::kGlobalRead &&
        count.text().starts_with("linear_prefill_weights.h")) {
      base += 32 * count.sectors;
    }
  }
  // A word of signs of eight outputs is a sector each time; it is read eight times, from L1 but
  // for the first.
  constexpr uint64_t kWeights = 128 * 512;
  EXPECT_GE(base, kWeights * 2 + kWeights / 8);
  EXPECT_LE(base, kWeights * 2 + kWeights + 128 * 64);
}

// Pairs of blocks, unless L2 could not send what their tiles take.
TEST(LinearPrefillKernels, AreInClustersAsL2Needs) {
  const auto cluster = [](int32_t outputs, int32_t levels, int32_t rows, int32_t processors = 132) {
    return linear_prefill_kernel(kLinearPrefillHopperKernels, std::vector<RowGroup>{{0, rows, 0}},
                                 outputs, levels, processors)
        .cluster;
  };
  EXPECT_EQ(cluster(4096, 1, 2048), 2);     // 128 × 256: 33 KiB in 1024 cycles
  EXPECT_EQ(cluster(6144, 1, 512), 4);      // 192 × 128: 29.5 KiB in 768, not 33.5
  EXPECT_EQ(cluster(4096, 1, 512), 8);      // 128 × 128: 19 KiB in 512, not 21
  EXPECT_EQ(cluster(4096, 0, 512), 4);      // without signs 20
  EXPECT_EQ(cluster(4096, 2, 512), 4);      // 22 KiB in 594
  EXPECT_EQ(cluster(128 * 31, 1, 512), 8);  // and one block without outputs
  EXPECT_EQ(cluster(128, 1, 512), 1);
  EXPECT_EQ(cluster(256, 1, 512), 2);  // few blocks: L2 has enough for them
  EXPECT_EQ(cluster(4096, 1, 2048, 1), 1);
  EXPECT_EQ(
      linear_prefill_kernel(kLinearPrefillKernels, std::vector<RowGroup>{{0, 512, 0}}, 4096, 1, 108)
          .cluster,
      1);
  LinearPrefillParams p{};
  p.outputs = 4096;
  LinearPrefillKernel kernel = kLinearPrefillHopperKernels[0];
  kernel.cluster = 4;
  const Launch launch = linear_prefill_launch(p, kernel, 512, 1);
  EXPECT_EQ(launch.cluster.x, 1u);  // the same rows
  EXPECT_EQ(launch.cluster.y, 4u);
}

// GPCs of at most 18 multiprocessors: clusters of more than two fill 16 of them.
TEST(LinearPrefillKernels, ClustersLeaveMultiprocessorsIdle) {
  EXPECT_EQ(cluster_multiprocessors(132, 1), 132);
  EXPECT_EQ(cluster_multiprocessors(132, 2), 132);
  EXPECT_EQ(cluster_multiprocessors(132, 4), 128);
  EXPECT_EQ(cluster_multiprocessors(132, 8), 128);
  EXPECT_EQ(cluster_multiprocessors(78, 8), 72);
  EXPECT_EQ(cluster_multiprocessors(7, 8), 0);
}

// Of one variant: tiles of 128 rows where those of 256 would leave multiprocessors idle.
TEST(LinearPrefillKernels, AreChosenByTheTurnsOfBlocks) {
  const auto rows = [](int32_t outputs, int32_t levels, const std::vector<RowGroup>& groups) {
    return linear_prefill_kernel(kLinearPrefillHopperKernels, groups, outputs, levels, 132)
        .tile_rows;
  };
  const auto outputs = [](int32_t outputs, int32_t levels, int32_t rows) {
    return linear_prefill_kernel(kLinearPrefillHopperKernels, std::vector<RowGroup>{{0, rows, 0}},
                                 outputs, levels, 132)
        .outputs;
  };
  EXPECT_EQ(outputs(6144, 1, 512), 192);           // 128 blocks of 192 × 128, not 96 of 128 × 256
  EXPECT_EQ(outputs(6144, 2, 512), 128);           // signs of two levels would be made too often
  EXPECT_EQ(outputs(6144, 1, 2048), 128);          // no sooner done, and more read from L2
  EXPECT_EQ(rows(4096, 1, {{0, 512, 0}}), 128);    // 128 blocks, not 64
  EXPECT_EQ(rows(28672, 1, {{0, 512, 0}}), 128);   // 7 turns of 128 rows, not 4 of 256
  EXPECT_EQ(rows(28672, 1, {{0, 2048, 0}}), 256);  // the same either way
  EXPECT_EQ(rows(4096, 4, {{0, 600, 0}}), 256);    // signs of four levels are made half as often
  EXPECT_EQ(rows(28672, 1, {{0, 37, 0}, {37, 74, 1}}), 128);
  EXPECT_EQ(linear_prefill_kernel(kLinearPrefillHopperKernels, std::vector<RowGroup>{{0, 9, 0}}, 96,
                                  3, 132)
                .levels,
            4);
}

}  // namespace
}  // namespace deltad::cuda
