// The linear layer on every instruction set of this machine: against the fp64 oracle over awkward
// shapes, the 5 % rule, and that a row's result is its own.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/kernels/rows_alone.h"

namespace deltad::testing {
namespace {

double norm(const std::vector<double>& v) {
  double sum = 0;
  for (const double e : v) sum += e * e;
  return std::sqrt(sum);
}

// Whether row r of a and row s of b are the same bits in the first `columns` columns.
bool same_row(const std::vector<float>& a, size_t r, const std::vector<float>& b, size_t s,
              size_t wide, size_t columns) {
  return std::memcmp(a.data() + r * wide, b.data() + s * wide, columns * sizeof(float)) == 0;
}

class LinearTest : public ::testing::TestWithParam<Isa> {
 protected:
  bool rounds_signs() const { return GetParam() >= Isa::kAvx512; }
  bool bf16() const { return GetParam() == Isa::kAvx512Bf16; }
};

INSTANTIATE_TEST_SUITE_P(Isa, LinearTest, ::testing::ValuesIn(usable_isas()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

struct Shape2 {
  int64_t rows, columns;
};
constexpr Shape2 kShapes[] = {{1, 24},    {3, 100},  {17, 72},    {72, 24},
                              {100, 576}, {509, 72}, {576, 1536}, {49152, 24}};

// Error of the base part and of the sign part (levels 1 to 4) on each shape, relative to the norm
// that random operands give them, ‖W‖·‖x‖/√K. Stated bounds: 2e-6 for sums of up to 1536 products
// in fp32 (those of vdpbf16ps are exact); for signs on int8 activations 1.2 % (3 % of a single
// output, which nothing averages).
TEST_P(LinearTest, AgreesWithTheOracle) {
  double worst_base = 0, worst_sign = 0;
  for (const Shape2 shape : kShapes) {
    LinearCase c(GetParam(), 2, shape.rows, shape.columns);
    for (int levels = 1; levels <= kMaxLevels; ++levels) c.add_variant(levels, 0.01);
    const int32_t m = shape.rows > 10000 ? 6 : 21;
    const std::vector<float> x = c.random_rows(m);
    std::vector<RowGroup> groups = {{0, 1, kBaseSlot}};
    for (int32_t s = 0; s < 4; ++s) groups.push_back({s + 1, s + 2, s});
    if (m > 5) groups.push_back({5, m, kBaseSlot});
    const std::vector<float> y = c.run(x, groups, Epilogue::kStore);
    const auto rows = static_cast<size_t>(shape.rows);
    const double fan = std::sqrt(static_cast<double>(shape.rows));
    for (const RowGroup& g : groups)
      for (int32_t r = g.first_row; r < g.end_row; ++r) {
        const float* xr = x.data() + r * shape.columns;
        double length = 0;
        for (int64_t i = 0; i < shape.columns; ++i)
          length += static_cast<double>(xr[i]) * static_cast<double>(xr[i]);
        length = std::sqrt(length);
        const double base_scale = 1.2533 * kMeanAbsolute * fan * length;
        const double sign_scale = 0.01 * kMeanAbsolute * fan * length;
        const std::vector<double> wx =
            ref::product(c.weight().data(), xr, shape.rows, shape.columns);
        std::vector<double> error(rows), sx(rows, 0.0);
        if (g.slot >= 0)
          sx = ref::sign_product(c.variant(g.slot).levels(), xr, shape.rows, shape.columns);
        for (size_t o = 0; o < rows; ++o)
          error[o] = static_cast<double>(y[static_cast<size_t>(r) * rows + o]) - wx[o] - sx[o];
        if (g.slot < 0) {
          worst_base = std::max(worst_base, norm(error) / base_scale);
          ASSERT_LE(norm(error), 2e-6 * base_scale)
              << shape.rows << "x" << shape.columns << " row " << r;
          continue;
        }
        const double rounding = !rounds_signs() ? 2e-6 : shape.rows < 10 ? 3e-2 : 1.2e-2;
        worst_sign = std::max(worst_sign, norm(error) / sign_scale);
        ASSERT_LE(norm(error), rounding * sign_scale + 2e-6 * base_scale)
            << shape.rows << "x" << shape.columns << " row " << r;
      }
  }
  std::printf("%s: worst error of the base part %.2e, of the sign part %.2e\n",
              isa_name(GetParam()), worst_base, worst_sign);
}

// ‖(y − Wx) − αSx‖ ≤ 5 % of ‖αSx‖ at α = 1 % of the mean |W|; smaller α are tabulated. One row and
// many, on activations with outliers as real ones have.
TEST_P(LinearTest, KeepsTheFivePercentRule) {
  std::printf("%s: error of the delta, rows of 576 columns with outliers\n", isa_name(GetParam()));
  for (const int32_t m : {1, 40}) {
    for (const double alpha : {1e-2, 3e-3, 1e-3, 3e-4, 1e-4}) {
      LinearCase c(GetParam(), 2, 576, 576);
      const int32_t slot = c.add_variant(1, alpha);
      std::vector<float> x = c.random_rows(m);
      for (size_t i = 0; i < x.size(); i += 97) x[i] *= 8.0f;  // a power of two: still bf16
      const std::vector<float> y = c.run(x, {{{0, m, slot}}}, Epilogue::kStore);
      double worst = 0;
      for (int32_t r = 0; r < m; ++r) {
        const std::vector<double> wx =
            ref::product(c.weight().data(), x.data() + r * 576, 576, 576);
        const std::vector<double> sx =
            ref::sign_product(c.variant(slot).levels(), x.data() + r * 576, 576, 576);
        std::vector<double> error(576);
        for (size_t o = 0; o < 576; ++o)
          error[o] = static_cast<double>(y[static_cast<size_t>(r) * 576 + o]) - wx[o] - sx[o];
        worst = std::max(worst, norm(error) / norm(sx));
      }
      std::printf("  rows %2d  alpha %.4f of mean |W|: %.4f %%\n", m, alpha, 100 * worst);
      if (alpha == 1e-2) {
        EXPECT_LE(worst, 0.05);
      }
    }
  }
}

// A batch of 70 rows of base, four variants and a dense one, in groups of awkward sizes: each row
// has the same bits as when it is alone, in any prefix of the batch, and on 1, 2 or 3 threads.
TEST_P(LinearTest, RowsDoNotDependOnTheBatch) {
  for (const Epilogue epilogue : {Epilogue::kStore, Epilogue::kSiluGate}) {
    const bool gate = epilogue == Epilogue::kSiluGate;
    std::vector<float> expected;
    for (const int threads : {1, 2, 3}) {
      LinearCase c(GetParam(), threads, gate ? 72 : 200, 292, gate);
      for (const int levels : {1, 2, 1, 4}) c.add_variant(levels, 0.01);
      c.add_variant(0, 0.0, gate ? 72 : 200);
      const std::vector<float> x = c.random_rows(70);
      const int32_t sizes[] = {5, 1, 1, 17, 2, 1, 3, 30, 1, 9};
      const int32_t slots[] = {kBaseSlot, 0, 1, 2, 4, kBaseSlot, 3, 1, 0, kBaseSlot};
      const std::vector<RowGroup> groups = groups_of(sizes, slots);
      const auto wide = static_cast<size_t>(c.out_columns(epilogue));
      const std::vector<float> all = c.run(x, groups, epilogue);
      if (expected.empty()) expected = all;
      ASSERT_EQ(0, std::memcmp(all.data(), expected.data(), all.size() * sizeof(float)))
          << threads << " threads";
      ASSERT_NO_FATAL_FAILURE(expect_rows_as_alone(c, x, groups, epilogue, all));
      if (threads != 2) continue;
      ASSERT_NO_FATAL_FAILURE(expect_prefixes_as_whole(c, x, groups, epilogue, all, 1));
      // And all rows as one variant's, so that every panel size of the sign product is met.
      for (int32_t m = 1; m < 70 && !gate; ++m) {
        const std::vector<float> one = c.run(rows_of(x, 292, 0, m), {{{0, m, 3}}}, epilogue);
        const std::vector<float> last = c.run(rows_of(x, 292, m - 1, 1), {{{0, 1, 3}}}, epilogue);
        ASSERT_TRUE(same_row(one, static_cast<size_t>(m) - 1, last, 0, wide, wide)) << m << " rows";
      }
    }
  }
}

TEST_P(LinearTest, AddsTheResidual) {
  LinearCase c(GetParam(), 2, 100, 72);
  const int32_t slot = c.add_variant(2, 0.01);
  const std::vector<float> x = c.random_rows(19), before = [&] {
    std::vector<float> v(1900);
    for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i % 37) * 0.25f - 3.0f;
    return v;
  }();
  const std::vector<RowGroup> groups = {{0, 3, kBaseSlot}, {3, 19, slot}};
  const std::vector<float> y = c.run(x, groups, Epilogue::kStore);
  const std::vector<float> sum = c.run(x, groups, Epilogue::kAddResidual, &before);
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(sum[i], before[i] + y[i]) << i;
}

// gate and up take turns; out's padding (72 → 80) is zero.
TEST_P(LinearTest, GatesWithSilu) {
  LinearCase c(GetParam(), 2, 72, 576, true);
  const int32_t slot = c.add_variant(1, 0.01);
  std::vector<float> x = c.random_rows(18);
  for (float& v : x) v *= 8.0f;  // gates from about −40 to 40
  const std::vector<float> y = c.run(x, {{{0, 2, kBaseSlot}, {2, 18, slot}}}, Epilogue::kSiluGate);
  const double tolerance = bf16() ? 0x1p-8 : rounds_signs() ? 2e-3 : 1e-5;
  for (size_t r = 0; r < 18; ++r) {
    std::vector<double> wx = ref::product(c.weight().data(), x.data() + r * 576, 144, 576);
    if (r >= 2) {
      const std::vector<double> sx =
          ref::sign_product(c.variant(slot).levels(), x.data() + r * 576, 144, 576);
      for (size_t o = 0; o < 144; ++o) wx[o] += sx[o];
    }
    double largest = 0;
    for (size_t i = 0; i < 72; ++i)
      largest = std::max(largest, std::fabs(ref::silu(wx[i]) * wx[72 + i]));
    for (size_t i = 0; i < 72; ++i) {
      const double expected = ref::silu(wx[i]) * wx[72 + i];
      ASSERT_NEAR(y[r * 80 + i], expected,
                  tolerance * std::max(std::fabs(expected), 0.05 * largest));
    }
    for (size_t i = 72; i < 80; ++i) ASSERT_EQ(y[r * 80 + i], 0.0f);
  }
}

// A dense head with more rows than the base: its rows see it, the others keep what lies beyond
// their own head; and a batch of dense rows alone does not read the base at all.
TEST_P(LinearTest, ReplacesByADenseMatrix) {
  LinearCase c(GetParam(), 2, 50, 72);
  const int32_t dense = c.add_variant(0, 0.0, 67);
  const int32_t sign = c.add_variant(1, 0.01);
  const std::vector<float> x = c.random_rows(40);
  std::vector<float> before(40 * 67, -7.5f);
  const std::vector<float> y = [&] {
    std::vector<float> initial(before);
    return c.run(x, {{{0, 10, kBaseSlot}, {10, 37, dense}, {37, 40, sign}}}, Epilogue::kStore,
                 &initial);
  }();
  for (size_t r = 0; r < 40; ++r) {
    const bool own = r >= 10 && r < 37;
    const std::vector<double> wx =
        own ? ref::product(c.variant(dense).dense.data(), x.data() + r * 72, 67, 72)
            : ref::product(c.weight().data(), x.data() + r * 72, 50, 72);
    for (size_t o = 0; o < 67; ++o) {
      if (o >= wx.size()) {
        ASSERT_EQ(y[r * 67 + o], -7.5f);
        continue;
      }
      ASSERT_NEAR(y[r * 67 + o], wx[o], r >= 37 ? 2e-2 : 1e-5) << r << " " << o;
    }
  }
}

}  // namespace
}  // namespace deltad::testing
