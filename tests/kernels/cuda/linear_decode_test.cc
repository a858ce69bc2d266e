// The decode kernel on the emulator against the fp64 oracle, over awkward shapes.
#include "kernels/cuda/linear_decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/ref/linear.h"
#include "tests/kernels/cuda/decode_case.h"

namespace deltad::cuda {
namespace {

using emulator::Options;
using emulator::Order;

std::string place(int32_t row, int32_t output) {
  return "row " + std::to_string(row) + " output " + std::to_string(output);
}

int32_t slot_of(const std::vector<RowGroup>& groups, int32_t row) {
  for (const RowGroup& group : groups) {
    if (row < group.end_row) return group.slot;
  }
  return -1;
}

// Every output of every row within the bound that follows from the row's and the weight's norms.
void expect_oracle(const DecodeCase& c, const std::vector<float>& x,
                   const std::vector<RowGroup>& groups, const std::vector<float>& out) {
  const int32_t m = groups.back().end_row, outputs = c.shape().outputs();
  ASSERT_EQ(out.size(), static_cast<size_t>(m * outputs));
  for (int32_t row = 0; row < m; ++row) {
    const auto want = c.expected(x.data() + static_cast<ptrdiff_t>(row) * c.shape().columns,
                                 slot_of(groups, row));
    for (int32_t o = 0; o < outputs; ++o) {
      ASSERT_NEAR(out[static_cast<size_t>(row * outputs + o)], want.y[static_cast<size_t>(o)],
                  want.error[static_cast<size_t>(o)])
          << place(row, o);
    }
  }
}

struct Shape {
  const char* name;
  int32_t m;
  WeightShape weight;
  int32_t variants, levels;
  double alpha;
};
// Pairwise over rows, shapes, variants, levels and α: SmolLM2 (576, 1536), 8B (4096, 14336) and
// 70B (8192, 28672) in narrow slices, shards of them, columns that fill no tile.
const Shape kShapes[] = {
    {"smollm_o", 1, {{576}, 576}, 1, 1, 0.01},
    {"smollm_qkv", 14, {{576, 192, 192}, 576}, 14, 1, 0.01},
    {"smollm_down", 7, {{576}, 1536}, 3, 2, 1e-6},
    {"smollm_gate", 33, {{1536, 1536}, 576, true}, 2, 1, 1},
    {"shard_down", 16, {{64}, 1792}, 14, 2, 0.1},
    {"llama_down", 5, {{24}, 14336}, 2, 1, 1e-4},
    {"llama_q", 17, {{40}, 4096}, 4, 2, 0.01},
    {"large_down", 2, {{16}, 28672}, 1, 2, 0.01},
    {"large_q", 64, {{16}, 8192}, 5, 1, 0.001},
    {"ragged", 31, {{70, 10}, 300}, 6, 2, 0.01},
    {"narrow", 129, {{8}, 250}, 14, 1, 0.3},
    {"short", 3, {{100}, 9}, 2, 2, 1},
    {"base", 32, {{128}, 1000}, 0, 0, 0},
};

class LinearDecode : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, LinearDecode, testing::ValuesIn(kShapes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(LinearDecode, EqualsTheOracle) {
  const Shape& s = GetParam();
  DecodeCase c(s.weight);
  std::vector<int32_t> slots = {-1};
  for (int32_t v = 0; v < s.variants; ++v) {
    // Some variants have fewer levels than others, one none at all.
    slots.push_back(c.add_variant(v == 1 ? 0 : s.levels - v % 2 * (s.levels - 1), s.alpha, v == 2));
  }
  std::mt19937 random(3);
  const std::vector<float> x = c.random_rows(s.m);
  const std::vector<RowGroup> groups = random_groups(s.m, slots, random);
  const DecodeCase::Run run = c.run(x, groups);
  ASSERT_TRUE(run.report.ok()) << run.report.text();
  expect_oracle(c, x, groups, run.out);
}

// A middle-sized weight with three splits of four chunks, two variants of two levels and one of
// one, and a last block that is not full.
struct Middle {
  Middle() : c({{72}, 2900}) {
    a = c.add_variant(2, 0.01);
    b = c.add_variant(1, 0.1);
    d = c.add_variant(2, 0.01, true);
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
    expect_oracle(m.c, x, groups, run.out);
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
  const int32_t v = c.add_variant(2, 0.05);
  const std::vector<float> x = c.random_rows(5);
  const std::vector<RowGroup> groups = {{0, 2, -1}, {2, 5, v}};
  for (int32_t splits : {1, 2}) {
    const DecodeCase::Run run =
        c.run(x, groups, {.epilogue = LinearEpilogue::kSiluGate, .splits = splits});
    ASSERT_TRUE(run.report.ok()) << run.report.text();
    ASSERT_EQ(run.out.size(), 5u * 48);
    for (int32_t row = 0; row < 5; ++row) {
      const auto want =
          c.expected(x.data() + static_cast<ptrdiff_t>(row) * 520, slot_of(groups, row));
      for (int32_t i = 0; i < 48; ++i) {
        const float got = run.out[static_cast<size_t>(row * 48 + i)];
        if (i >= 40) {
          EXPECT_EQ(got, 0.0f) << place(row, i);
          continue;
        }
        const auto gate = static_cast<size_t>(c.shape().output_of(0, i));
        const auto up = static_cast<size_t>(c.shape().output_of(1, i));
        const double y = ref::silu(want.y[gate]) * want.y[up];
        // silu's slope is at most 1.1; a few roundings of fp32, expf's own 2, one of bf16.
        const double fp32 = std::ldexp(8, -24) * std::abs(y) +
                            1.1 * want.error[gate] * (std::abs(want.y[up]) + want.error[up]) +
                            std::abs(ref::silu(want.y[gate])) * want.error[up];
        EXPECT_NEAR(got, y, fp32 + std::ldexp(1, -8) * (std::abs(y) + fp32)) << place(row, i);
      }
    }
  }
}

// ‖(y − Wx) − αSx‖ ≤ 5 % of ‖αSx‖ is what every path owes at α = 1 % of mean |W|; 16-bit integers
// keep three more digits, and W never meets α before fp32.
TEST(LinearDecodeDelta, IsKeptWhateverItsSize) {
  for (const auto& [alpha, bound] : {std::pair{0.01, 0.001}, {1e-3, 0.005}, {1e-4, 0.05}}) {
    DecodeCase c({{64}, 1536});
    const int32_t v = c.add_variant(1, alpha);
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
    std::printf("alpha %g of mean |W|: delta off by %.2e\n", alpha, std::sqrt(error / size));
  }
}

// Batches that between them reach every site; each site switched off must show in one of them.
TEST(LinearDecodeMutations, EachIsCaught) {
  Middle m;
  DecodeCase gated({{40, 40}, 520, true});
  const int32_t v = gated.add_variant(1, 0.05);
  DecodeCase short_one({{16}, 250});
  const int32_t w = short_one.add_variant(1, 0.05);
  struct Batch {
    DecodeCase* c;
    std::vector<float> x;
    std::vector<RowGroup> groups;
    DecodeCase::Call call;
    DecodeCase::Run right;
  };
  std::vector<Batch> batches;
  batches.push_back(
      {&m.c, m.c.random_rows(18), {{0, 3, -1}, {3, 9, m.a}, {9, 10, m.b}, {10, 18, m.d}}, {}, {}});
  batches.push_back({&gated,
                     gated.random_rows(3),
                     {{0, 1, -1}, {1, 3, v}},
                     {.epilogue = LinearEpilogue::kSiluGate},
                     {}});
  // No variant, a part of three chunks and more, a block with idle warps.
  batches.push_back({&m.c, m.c.random_rows(2), {{0, 2, -1}}, {}, {}});
  batches.push_back({&short_one, short_one.random_rows(2), {{0, 2, w}}, {}, {}});
  std::set<emulator::SiteId> sites;
  for (Batch& batch : batches) {
    batch.right = batch.c->run(batch.x, batch.groups, batch.call);
    ASSERT_TRUE(batch.right.report.ok()) << batch.right.report.text();
    sites.insert(batch.right.report.sites.begin(), batch.right.report.sites.end());
  }
  EXPECT_GE(sites.size(), 15u);
  const auto caught = [&](const Options& mutation) {
    for (const Batch& batch : batches) {
      for (Order order : {Order::kFifo, Order::kLifo}) {
        DecodeCase::Call call = batch.call;
        call.options = mutation;
        call.options.order = order;
        call.options.resident_blocks = 2;
        const DecodeCase::Run wrong = batch.c->run(batch.x, batch.groups, call);
        if (!wrong.report.ok() || wrong.out != batch.right.out) return true;
      }
    }
    return false;
  };
  for (emulator::SiteId id : sites) {
    const emulator::Site& site = emulator::SiteTable::instance().at(id);
    EXPECT_TRUE(caught({.off = {id}})) << site.text();
    if (site.kind == emulator::SiteKind::kWait) {
      EXPECT_TRUE(caught({.weaker = {id}})) << "weaker " << site.text();
    }
  }
}

// Banks never conflict, and what comes from device memory is W once, each variant's signs once, and
// each row's activations once for each block of outputs.
TEST(LinearDecodeAccesses, AreEveryByteOnceAndWithoutConflicts) {
  Middle m;
  const std::vector<float> x = m.c.random_rows(18);
  const std::vector<RowGroup> groups = {{0, 3, -1}, {3, 9, m.a}, {9, 10, m.b}, {10, 18, m.d}};
  const DecodeCase::Run run = m.c.run(x, groups, {.options = {.count_accesses = true}});
  ASSERT_TRUE(run.report.ok()) << run.report.text();
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
