// Logits of a model on several ranks beside those of the same model on one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace deltad::testing {

using Rows = std::vector<std::vector<float>>;

// How far logits may lie apart, as a share of their norm. Several ranks add the same products in
// another order, in fp32, which is nothing beside bf16; but it may turn the rounding of any value
// that is rounded to bf16 (by half a unit, 2^-9) the other way: per layer keys and values, and
// where activations are bf16 the inputs of its four products and of the head. eight_bits: signs are
// multiplied with activations rounded to 8 bits, by a scale for each 128 columns, which of a rank
// begin with its own: an error of 1 to 2 % of the sign product, in o and down of each layer. All
// independent of each other, so that squares add.
inline double tolerance(int64_t layers, bool bf16, bool eight_bits) {
  const double unit = std::ldexp(1, -9);
  const double roundings =
      2.0 * static_cast<double>(layers) + (bf16 ? 4.0 * static_cast<double>(layers) + 1 : 0);
  const double of_signs = eight_bits ? 2.0 * static_cast<double>(layers) * 0.02 * 0.02 : 0;
  return std::sqrt(2 * (roundings * unit * unit + of_signs));
}

// Returns how many greedy tokens were compared.
inline int expect_close(const Rows& rows, const Rows& expected, double tolerance) {
  EXPECT_EQ(rows.size(), expected.size());
  if (rows.size() != expected.size()) return 0;
  double worst = 0;
  int compared = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto& x = rows[r];
    const auto& y = expected[r];
    EXPECT_EQ(x.size(), y.size());
    if (x.size() != y.size()) return 0;
    double apart = 0, norm = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      apart += (x[i] - y[i]) * static_cast<double>(x[i] - y[i]);
      norm += y[i] * static_cast<double>(y[i]);
    }
    const double off = std::sqrt(apart / norm);
    if (!(off <= worst)) worst = off;
    // The greedy token, where the two best are further apart than four deviations of either.
    const auto best = std::max_element(y.begin(), y.end());
    float second = -INFINITY;
    for (auto it = y.begin(); it != y.end(); ++it)
      if (it != best) second = std::max(second, *it);
    const double deviation = tolerance * std::sqrt(norm / static_cast<double>(y.size()));
    if (*best - second < 8 * deviation) continue;
    ++compared;
    EXPECT_EQ(std::max_element(x.begin(), x.end()) - x.begin(), best - y.begin()) << "row " << r;
  }
  EXPECT_LE(worst, tolerance);
  std::printf("    off by %.5f (allowed %.5f), %d of %zu greedy tokens compared\n", worst,
              tolerance, compared, rows.size());
  return compared;
}

}  // namespace deltad::testing
