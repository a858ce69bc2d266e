// The decode kernel on the emulator against the fp64 oracle, over awkward shapes.
#include "kernels/cuda/linear_decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/cuda/decode_case.h"
#include "tests/kernels/cuda/decode_choices.h"
#include "tests/kernels/cuda/linear_rotary_case.h"
#include "tests/kernels/cuda/mutations.h"

namespace deltad::cuda {
namespace {

using emulator::Options;
using emulator::Order;

constexpr size_t kShares = 8;
#if defined(DELTAD_FEW_BATCHES)
constexpr size_t kStep = 5 * kShares;
#else
constexpr size_t kStep = kShares;
#endif
class LinearDecode : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Shares, LinearDecode, testing::Range(size_t{0}, kShares));

TEST_P(LinearDecode, EqualsTheOracle) {
  const std::vector<Choice> choices = pairwise(8);
  for (size_t i = GetParam(); i < choices.size(); i += kStep) {
    SCOPED_TRACE("choice " + std::to_string(i) + ": " + testing::PrintToString(choices[i]));
    expect_choice(choices[i], static_cast<uint32_t>(i));
    if (HasFatalFailure()) return;
  }
}

// A middle-sized weight with three splits of four chunks, two variants of two levels and one of
// one, and a last block that is not full.
struct Middle {
  Middle() : c({{72}, 2900}) {
    a = c.add_variant(2, 2e-4);
    b = c.add_variant(1, 2e-3);
    d = c.add_variant(2, 2e-4, true);
  }
  DecodeCase c;
  int32_t a, b, d;
};

TEST(LinearDecodeRows, AreTheSameBitsForEveryNumberAndNeighbour) {
  Middle m;
  const int32_t rows = 67;
  const std::vector<float> x = m.c.random_rows(rows);
  std::mt19937 random(11);
  const std::vector<RowGroup> groups = random_groups(rows, {-1, m.a, m.b, m.d}, random);
  const DecodeCase::Run all = m.c.run(x, groups);
  ASSERT_TRUE(all.report.ok()) << all.report.text();
  const auto columns = static_cast<ptrdiff_t>(m.c.shape().columns);
  const auto outputs = static_cast<ptrdiff_t>(m.c.shape().outputs());
  // Windows of 1, 2, 5, 16, 17, 33 rows: other tiles, other neighbours, other kernels.
  for (int32_t width : {1, 2, 5, 16, 17, 33}) {
    for (int32_t first = width % 3; first + width <= rows; first += std::max(width, 9)) {
      std::vector<RowGroup> some;
      for (const RowGroup& group : groups) {
        const int32_t from = std::max(group.first_row, first) - first;
        const int32_t to = std::min(group.end_row, first + width) - first;
        if (from < to) some.push_back({from, to, group.slot});
      }
      const DecodeCase::Run window =
          m.c.run({x.begin() + first * columns, x.begin() + (first + width) * columns}, some);
      ASSERT_TRUE(window.report.ok()) << window.report.text();
      EXPECT_TRUE(
          std::equal(window.out.begin(), window.out.end(), all.out.begin() + first * outputs))
          << width << " rows from " << first;
    }
  }
}

TEST(LinearDecodeRows, AreTheSameBitsInEveryOrderOfThreadsAndBlocks) {
  Middle m;
  const std::vector<float> x = m.c.random_rows(18);
  const std::vector<RowGroup> groups = {{0, 3, -1}, {3, 9, m.a}, {9, 10, m.b}, {10, 18, m.d}};
  const DecodeCase::Run first = m.c.run(x, groups);
  ASSERT_TRUE(first.report.ok()) << first.report.text();
  for (Order order : {Order::kLifo, Order::kRandom}) {
    for (uint32_t seed : {1u, 2u}) {
      const Options options = {.order = order, .seed = seed, .resident_blocks = 5};
      const DecodeCase::Run again = m.c.run(x, groups, {.options = options});
      ASSERT_TRUE(again.report.ok()) << again.report.text();
      EXPECT_EQ(again.out, first.out);
    }
  }
}

// Sign sums are whole numbers: cutting the columns elsewhere does not touch the delta.
TEST(LinearDecodeSplits, GiveTheOracle) {
  Middle m;
  const std::vector<float> x = m.c.random_rows(4);
  const std::vector<RowGroup> groups = {{0, 1, -1}, {1, 3, m.a}, {3, 4, m.b}};
  for (int32_t splits : {1, 2, 5, 12}) {
    const DecodeCase::Run run = m.c.run(x, groups, {.splits = splits});
    ASSERT_TRUE(run.report.ok()) << run.report.text();
    expect_oracle(m.c, x, groups, {}, run.out);
  }
}

TEST(LinearDecodeSplits, FollowFromTheShapeAlone) {
  EXPECT_EQ(linear_decode_splits(28672, 4096), 1);
  EXPECT_EQ(linear_decode_splits(4096, 4096), 4);
  EXPECT_EQ(linear_decode_splits(4096, 14336), 4);
  EXPECT_EQ(linear_decode_splits(1024, 8192), 8);  // four chunks a split at the least
  EXPECT_EQ(linear_decode_splits(576, 576), 1);
  EXPECT_EQ(linear_decode_splits(16, 28672), 28);
}

TEST(LinearDecodeEpilogue, AddsTheResidual) {
  Middle m;
  const std::vector<float> x = m.c.random_rows(6);
  const std::vector<RowGroup> groups = {{0, 2, -1}, {2, 6, m.a}};
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> residual(static_cast<size_t>(6 * m.c.shape().outputs()));
  for (float& v : residual) v = normal(random);
  for (int32_t splits : {1, 3}) {
    const DecodeCase::Run plain = m.c.run(x, groups, {.splits = splits});
    const DecodeCase::Run added =
        m.c.run(x, groups,
                {.epilogue = LinearEpilogue::kAddResidual, .initial = &residual, .splits = splits});
    ASSERT_TRUE(added.report.ok()) << added.report.text();
    for (size_t i = 0; i < residual.size(); ++i) {
      EXPECT_EQ(added.out[i], residual[i] + plain.out[i]);
    }
  }
}

TEST(LinearDecodeEpilogue, GatesWithSilu) {
  // 40 rows of each part: the last tile of a part is half padding, the last block is not full.
  DecodeCase c({{40, 40}, 520, true});
  const int32_t v = c.add_variant(2, 1e-3);
  const std::vector<float> x = c.random_rows(5);
  const std::vector<RowGroup> groups = {{0, 2, -1}, {2, 5, v}};
  for (int32_t splits : {1, 2}) {
    const DecodeCase::Call call = {.epilogue = LinearEpilogue::kSiluGate, .splits = splits};
    const DecodeCase::Run run = c.run(x, groups, call);
    ASSERT_TRUE(run.report.ok()) << run.report.text();
    expect_oracle(c, x, groups, call, run.out);
    for (size_t i = 0; i < run.out.size(); ++i) {
      if (i % 48 >= 40) {
        EXPECT_EQ(run.out[i], 0.0f);
      }
    }
  }
}

TEST(LinearDecodeGroups, MayBeMoreThanAWarpReadsAtOnce) { expect_many_groups(); }

// Heads of variants: larger than the base's, smaller, with signs on top; a fused weight of which a
// part is replaced.
TEST(LinearDecodeDense, GoesThroughItsOwnWeight) {
  DecodeCase c({{40}, 1100});
  const int32_t large = c.add_dense(150), small = c.add_dense(16, 2, 2e-3);
  const int32_t signs = c.add_variant(1, 2e-3), none = c.add_variant(0, 0);
  const std::vector<RowGroup> groups = {{0, 2, -1},      {2, 4, large},  {4, 5, signs},
                                        {5, 8, small},   {8, 9, none},   {9, 29, large},
                                        {29, 30, signs}, {30, 33, small}};
  const std::vector<float> x = c.random_rows(33);
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> residual(static_cast<size_t>(33 * c.widest(groups)));
  for (float& v : residual) v = normal(random);
  for (int32_t splits : {1, 3}) {
    DecodeCase::Call call = {.splits = splits, .spare_tiles = 2};
    const DecodeCase::Run run = c.run(x, groups, call);
    ASSERT_TRUE(run.report.ok()) << run.report.text();
    expect_oracle(c, x, groups, call, run.out);
    call.epilogue = LinearEpilogue::kAddResidual;
    call.initial = &residual;
    const DecodeCase::Run added = c.run(x, groups, call);
    ASSERT_TRUE(added.report.ok()) << added.report.text();
    expect_oracle(c, x, groups, call, added.out);
  }
}

TEST(LinearDecodeDense, ReplacesAPartOfAFusedWeight) {
  DecodeCase c({{40, 40}, 520, true});
  const int32_t up = c.replace_parts({false, true}), gate = c.replace_parts({true, false}, 1, 1e-3);
  const std::vector<float> x = c.random_rows(7);
  const std::vector<RowGroup> groups = {{0, 1, -1}, {1, 4, up}, {4, 7, gate}};
  const DecodeCase::Call call = {.epilogue = LinearEpilogue::kSiluGate};
  const DecodeCase::Run run = c.run(x, groups, call);
  ASSERT_TRUE(run.report.ok()) << run.report.text();
  expect_oracle(c, x, groups, call, run.out);
}

// Neither are the bits of other rows touched, nor do others touch those of these.
TEST(LinearDecodeDense, HasTheSameBitsForEveryNeighbour) {
  Middle m;
  const int32_t dense = m.c.replace_parts({true}, 1, 2e-4);
  const int32_t rows = 40;
  const std::vector<float> x = m.c.random_rows(rows);
  const std::vector<RowGroup> groups = {
      {0, 3, -1}, {3, 9, dense}, {9, 12, m.a}, {12, 31, dense}, {31, 40, -1}};
  const std::vector<RowGroup> without = {{0, 9, -1}, {9, 12, m.a}, {12, 40, -1}};
  const auto columns = static_cast<ptrdiff_t>(m.c.shape().columns);
  const auto outputs = static_cast<ptrdiff_t>(m.c.shape().outputs());
  const DecodeCase::Run all = m.c.run(x, groups), base = m.c.run(x, without);
  const DecodeCase::Run alone =
      m.c.run({x.begin() + 12 * columns, x.begin() + 31 * columns}, {{0, 19, dense}});
  for (const DecodeCase::Run* run : {&all, &base, &alone}) {
    ASSERT_TRUE(run->report.ok()) << run->report.text();
  }
  const auto row = [&](const DecodeCase::Run& run, ptrdiff_t r) {
    return run.out.begin() + r * outputs;
  };
  EXPECT_TRUE(std::equal(row(all, 0), row(all, 3), row(base, 0)));
  EXPECT_TRUE(std::equal(row(all, 9), row(all, 12), row(base, 9)));
  EXPECT_TRUE(std::equal(row(all, 12), row(all, 31), row(alone, 0)));
  EXPECT_TRUE(std::equal(row(all, 31), row(all, 40), row(base, 31)));
}

// ‖(y − Wx) − αSx‖ ≤ 5 % of ‖αSx‖ is what every path owes at α = 1 % of mean |W|; 16-bit integers
// keep three more digits, and W never meets α before fp32.
TEST(LinearDecodeDelta, IsKeptWhateverItsSize) {
  for (const auto& [alpha, bound] : {std::pair{0.01, 0.001}, {1e-3, 0.005}, {1e-4, 0.05}}) {
    DecodeCase c({{64}, 1536});
    const int32_t v = c.add_variant(1, 0.02 * alpha);
    const std::vector<float> x = c.random_rows(8);
    const DecodeCase::Run base = c.run(x, {{0, 8, -1}}), with = c.run(x, {{0, 8, v}});
    ASSERT_TRUE(with.report.ok()) << with.report.text();
    double error = 0, size = 0;
    for (int32_t row = 0; row < 8; ++row) {
      const auto want = c.expected(x.data() + static_cast<ptrdiff_t>(row) * 1536, v);
      for (int32_t o = 0; o < 64; ++o) {
        const auto at = static_cast<size_t>(row * 64 + o), output = static_cast<size_t>(o);
        const double delta = double{with.out[at]} - double{base.out[at]};
        error += (delta - want.delta[output]) * (delta - want.delta[output]);
        size += want.delta[output] * want.delta[output];
      }
    }
    EXPECT_LE(std::sqrt(error / size), bound) << "alpha " << alpha;
  }
}

// Batches that between them reach every site and what hangs on it.
TEST(LinearDecodeSites, AllMatter) {
  Middle m;
  DecodeCase gated({{40, 40}, 520, true}), narrow({{16}, 250});
  DecodeCase four({{16}, 1100}), headed({{40}, 1100});
  const int32_t large = headed.add_dense(80), small = headed.add_dense(16, 1, 2e-3);
  const int32_t v = gated.add_variant(1, 1e-3), w = narrow.add_variant(2, 1e-3);
  const int32_t e = four.add_variant(4, 1e-3), f = four.add_variant(3, 1e-3);
  // More pieces of signs a chunk than their ring holds.
  std::vector<RowGroup> single = {{0, 1, -1}};
  for (int32_t r = 1; r < 17; ++r) single.push_back({r, r + 1, r % 2 == 0 ? e : f});
  struct Batch {
    DecodeCase& c;
    std::vector<float> x;
    std::vector<RowGroup> groups;
    LinearEpilogue epilogue;
  };
  std::vector<Batch> batches = {
      // Splits, several groups, one and two levels, two tiles of rows.
      {m.c,
       m.c.random_rows(18),
       {{0, 3, -1}, {3, 9, m.a}, {9, 10, m.b}, {10, 18, m.d}},
       LinearEpilogue::kStore},
      // No variant, more than three chunks a split, idle warps.
      {m.c, m.c.random_rows(2), {{0, 2, -1}}, LinearEpilogue::kStore},
      {gated, gated.random_rows(3), {{0, 1, -1}, {1, 3, v}}, LinearEpilogue::kSiluGate},
      // Two blocks of 16 rows, four levels.
      {four, four.random_rows(17), single, LinearEpilogue::kStore},
      // Weights of their own, one larger, and a tile of rows too many.
      {headed,
       headed.random_rows(20),
       {{0, 1, -1}, {1, 19, large}, {19, 20, small}},
       LinearEpilogue::kAddResidual},
      // One chunk, where two are under way.
      {narrow, narrow.random_rows(2), {{0, 2, w}}, LinearEpilogue::kStore},
  };
  // Heads of five blocks of outputs, of which the last set has fewer; heads of one.
  LinearRotaryCase shared_head(1, 1, 80, 200, 1), own_head(1, 1, 64, 200, 1);
  expect_every_site_matters([&](const Options& options, emulator::Report* report) {
    std::vector<std::vector<float>> out;
    // Of one launch; whether to go on.
    const auto add = [&](const emulator::Report& one) {
      report->sites.insert(report->sites.end(), one.sites.begin(), one.sites.end());
      report->faults = one.faults;
      return one.ok();
    };
    for (Batch& batch : batches) {
      // What is added to, where nothing is, stays.
      const std::vector<float> zeros(static_cast<size_t>(20 * 80), 0.0f);
      const bool adds = batch.epilogue == LinearEpilogue::kAddResidual;
      DecodeCase::Run run = batch.c.run(batch.x, batch.groups,
                                        {.epilogue = batch.epilogue,
                                         .initial = adds ? &zeros : nullptr,
                                         .spare_tiles = adds ? 1 : 0,
                                         .options = options});
      out.push_back(std::move(run.out));
      if (!add(run.report)) return out;
    }
    for (LinearRotaryCase* c : {&shared_head, &own_head}) {
      emulator::Report one;
      const auto got = c->run(1, options, &one);
      out.push_back(got.qkv);
      out.emplace_back(got.cache.begin(), got.cache.end());
      if (!add(one)) return out;
    }
    return out;
  });
}

// Banks never conflict, and what comes from device memory is W once, each variant's signs once, and
// each row's activations once for each block of outputs.
TEST(LinearDecodeAccesses, AreEveryByteOnceAndWithoutConflicts) {
  Middle m;
  const std::vector<float> x = m.c.random_rows(18);
  const std::vector<RowGroup> groups = {{0, 3, -1}, {3, 9, m.a}, {9, 10, m.b}, {10, 18, m.d}};
  const DecodeCase::Run run = m.c.run(x, groups, {.options = {.count_accesses = true}});
  ASSERT_TRUE(run.report.ok()) << run.report.text();
  // 16 bf16 mma a tile of weights, chunk and 16 rows; one 1-bit mma for each row's each level.
  constexpr uint64_t kTileChunks = 10 * 12;
  EXPECT_EQ(run.report.counters.mma, kTileChunks * (2 * 16 + 6 * 2 + 1 + 8 * 2));
  uint64_t weights = 0, activations = 0;
  for (const emulator::AccessCount& count : run.report.accesses) {
    EXPECT_EQ(count.conflicts(), 0u) << count.text();
    if (count.kind != emulator::AccessKind::kGlobalRead) continue;
    const std::string text = count.text();
    if (text.starts_with("linear_stream.h")) weights += 32 * count.sectors;
    // What rows and slots are is a few words, read by one warp.
    if (text.starts_with("linear_block.h") && count.instructions > 100) {
      activations += 32 * count.sectors;
    }
  }
  constexpr uint64_t kOutputs = 80, kColumns = 12 * kChunk, kOutputBlocks = 2;
  EXPECT_EQ(weights, kOutputs * kColumns * 2 + 5 * kOutputs * kColumns / 8);
  // 2900 columns of x are 362½ units of 16 bytes, so 181½ sectors and, by the rows' stride of 5808
  // bytes, at times one more.
  const uint64_t planes = kOutputBlocks * 15 * kColumns * 2;
  EXPECT_GE(activations, planes + kOutputBlocks * 18 * 182 * 32);
  EXPECT_LE(activations, planes + kOutputBlocks * 18 * (182 + 12) * 32);
}

}  // namespace
}  // namespace deltad::cuda
