// Low-rank factors beside a weight on every instruction set of this machine: against the fp64
// oracle over awkward shapes and ranks, that a row's result is its own, and that every kind of
// delta adds to the others.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tests/kernels/rows_alone.h"

namespace deltad::testing {
namespace {

class LowRankTest : public ::testing::TestWithParam<Isa> {};

INSTANTIATE_TEST_SUITE_P(Isa, LowRankTest, ::testing::ValuesIn(usable_isas()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

double norm(const std::vector<double>& v) {
  double sum = 0;
  for (const double e : v) sum += e * e;
  return std::sqrt(sum);
}

// The delta is off by at most 1e-5 of its norm, plus what fp32 loses of the base product beside it:
// the test's factors are exact in bf16, and all sums are fp32.
TEST_P(LowRankTest, AgreesWithTheOracle) {
  constexpr int64_t kShapes[][2] = {{1, 24}, {17, 72}, {100, 100}, {509, 72}, {72, 1536}};
  for (const auto& [rows, columns] : kShapes) {
    LinearCase c(GetParam(), 2, rows, columns);
    std::vector<RowGroup> groups;
    int32_t m = 0;
    for (const int64_t rank : {1, 3, 4, 8, 16, 17, 64})
      for (const int32_t n : {1, 6}) {
        groups.push_back({m, m + n, c.add_variant(0, 0.0, 0, {rank})});
        m += n;
      }
    groups.push_back({m, m + 2, kBaseSlot});
    m += 2;
    const std::vector<float> x = c.random_rows(m);
    const std::vector<float> y = c.run(x, groups, Epilogue::kStore);
    for (const RowGroup& g : groups)
      for (int32_t r = g.first_row; r < g.end_row; ++r) {
        const float* xr = x.data() + r * columns;
        const std::vector<double> wx = ref::product(c.weight().data(), xr, rows, columns);
        std::vector<double> delta(static_cast<size_t>(rows), 0.0);
        if (g.slot >= 0) delta = c.low_rank_product(g.slot, xr);
        std::vector<double> error(static_cast<size_t>(rows));
        for (size_t o = 0; o < error.size(); ++o)
          error[o] = static_cast<double>(y[static_cast<size_t>(r * rows) + o]) - wx[o] - delta[o];
        ASSERT_LE(norm(error), 1e-5 * norm(delta) + 3e-6 * norm(wx) + 1e-7)
            << rows << "x" << columns << " row " << r;
      }
  }
}

// The parts of a fused weight have ranks of their own, or none.
TEST_P(LowRankTest, FusedParts) {
  LinearCase c(GetParam(), 2, 72, 292, true);
  const std::vector<std::vector<int64_t>> ranks = {{4, 4}, {3, 17}, {0, 5}, {16, 0}};
  std::vector<RowGroup> groups = {{0, 1, kBaseSlot}};
  for (int32_t i = 0; i < 4; ++i)
    groups.push_back(
        {1 + 3 * i, 4 + 3 * i, c.add_variant(0, 0.0, 0, ranks[static_cast<size_t>(i)])});
  std::vector<float> x = c.random_rows(13);
  for (float& v : x) v *= 8.0f;
  const std::vector<float> y = c.run(x, groups, Epilogue::kSiluGate);
  const double tolerance = c.bf16() ? 0x1p-8 : 1e-5;
  for (const RowGroup& g : groups)
    for (int32_t r = g.first_row; r < g.end_row; ++r) {
      const float* xr = x.data() + r * 292;
      std::vector<double> wx = ref::product(c.weight().data(), xr, 144, 292);
      if (g.slot >= 0) {
        const std::vector<double> delta = c.low_rank_product(g.slot, xr);
        for (size_t o = 0; o < 144; ++o) wx[o] += delta[o];
      }
      double largest = 0;
      for (size_t i = 0; i < 72; ++i)
        largest = std::max(largest, std::fabs(ref::silu(wx[i]) * wx[72 + i]));
      for (size_t i = 0; i < 72; ++i) {
        const double expected = ref::silu(wx[i]) * wx[72 + i];
        ASSERT_NEAR(y[static_cast<size_t>(r) * 80 + i], expected,
                    tolerance * std::max(std::fabs(expected), 0.05 * largest))
            << "row " << r;
      }
    }
}

// A variant may have signs and factors, or a dense matrix and factors beside it, in one weight.
// What the factors add is the same whatever else the variant has.
TEST_P(LowRankTest, AddsToSigns) {
  for (const int levels : {1, 2}) {
    LinearCase with(GetParam(), 2, 100, 200), without(GetParam(), 2, 100, 200);
    const int32_t both = with.add_variant(levels, 0.01, 0, {8});
    const int32_t signs = without.add_variant(levels, 0.01);
    for (const int32_t m : {1, 2, 20}) {
      const std::vector<float> x = with.random_rows(m);
      const std::vector<float> y = with.run(x, {{{0, m, both}}}, Epilogue::kStore);
      const std::vector<float> z = without.run(x, {{{0, m, signs}}}, Epilogue::kStore);
      for (int32_t r = 0; r < m; ++r) {
        const std::vector<double> delta = with.low_rank_product(both, x.data() + r * 200);
        for (size_t o = 0; o < 100; ++o) {
          const size_t at = static_cast<size_t>(r) * 100 + o;
          ASSERT_NEAR(y[at], static_cast<double>(z[at]) + delta[o], 1e-5) << m << " rows";
        }
      }
    }
  }
}

// Each row has the same bits as when it is alone, in any prefix of the batch, and on 1, 2 or 3
// threads.
TEST_P(LowRankTest, RowsDoNotDependOnTheBatch) {
  for (const Epilogue epilogue : {Epilogue::kStore, Epilogue::kSiluGate}) {
    const bool gate = epilogue == Epilogue::kSiluGate;
    std::vector<float> expected;
    for (const int threads : {1, 2, 3}) {
      LinearCase c(GetParam(), threads, gate ? 72 : 200, 292, gate);
      const auto ranks = [&](int64_t first, int64_t second) {
        return gate ? std::vector<int64_t>{first, second} : std::vector<int64_t>{first};
      };
      c.add_variant(0, 0.0, 0, ranks(4, 0));
      c.add_variant(1, 0.01, 0, ranks(17, 3));
      c.add_variant(2, 0.01);
      c.add_variant(0, 0.0, 0, ranks(16, 16));
      const std::vector<float> x = c.random_rows(110);
      const int32_t sizes[] = {5, 1, 1, 17, 2, 1, 3, 40, 31, 9};
      const int32_t slots[] = {kBaseSlot, 0, 1, 2, 3, kBaseSlot, 3, 1, 0, kBaseSlot};
      const std::vector<RowGroup> groups = groups_of(sizes, slots);
      const std::vector<float> all = c.run(x, groups, epilogue);
      if (expected.empty()) expected = all;
      ASSERT_EQ(0, std::memcmp(all.data(), expected.data(), all.size() * sizeof(float)))
          << threads << " threads";
      ASSERT_NO_FATAL_FAILURE(expect_rows_as_alone(c, x, groups, epilogue, all));
      if (threads != 2) continue;
      ASSERT_NO_FATAL_FAILURE(expect_prefixes_as_whole(c, x, groups, epilogue, all, 3));
    }
  }
}

// An embedding's factors: the row of a token plus s·B[token]·A.
TEST_P(LowRankTest, Embeddings) {
  CpuBackendOptions options;
  options.threads = 2;
  options.isa = isa_name(GetParam());
  auto backend = std::move(*make_cpu_backend(options));
  constexpr int64_t kVocab = 37, kColumns = 20, kRank = 3;
  ASSERT_TRUE(
      backend->declare_weights({{WeightKind::kEmbedding, {{"e.weight", kVocab}}, kColumns}}).ok());
  std::vector<uint16_t> values(kVocab * kColumns);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = f32_to_bf16(static_cast<float>(i % 13) * 0.25f);
  ASSERT_TRUE(backend->put_rows(0, 0, 0, kVocab, values.data()).ok());
  std::vector<float> a(kRank * kColumns), b(kVocab * kRank);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 7) - 3.0f;
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 5) * 0.5f - 1.0f;
  auto variant = std::move(*backend->new_variant({{}, {}, {{0, 0, kRank}}}));
  ASSERT_TRUE(variant->put_low_rank(0, 0, 0.5f, a.data(), b.data()).ok());
  ASSERT_TRUE(variant->finish().ok());
  backend->ops().bind_slot(0, variant.get());
  const std::vector<int32_t> ids = {36, 0, 17, 36};
  std::vector<float> out(ids.size() * kColumns);
  backend->ops().embed(matrix_view(out.data(), DType::kF32, 4, kColumns, kColumns), 0, ids,
                       std::vector<RowGroup>{{0, 3, 0}, {3, 4, kBaseSlot}});
  for (size_t r = 0; r < ids.size(); ++r)
    for (size_t c = 0; c < kColumns; ++c) {
      const auto id = static_cast<size_t>(ids[r]);
      float expected = bf16_to_f32(values[id * kColumns + c]);
      for (size_t k = 0; k < kRank && r < 3; ++k)
        expected += 0.5f * b[id * kRank + k] * a[k * kColumns + c];
      ASSERT_EQ(out[r * kColumns + c], expected) << r << " " << c;
    }
}

}  // namespace
}  // namespace deltad::testing
