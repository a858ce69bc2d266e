#include "engine/logit_scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace deltad {
namespace {

// Lengths around the lanes, parts and chunks of the loops.
const int64_t kLengths[] = {1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 49152, 49153};

std::vector<float> random_row(int64_t n, uint32_t seed, bool coarse = false) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = coarse ? std::round(normal(random)) : normal(random);
  return x;
}

TEST(LogitScan, MaxAndItsFirstIndex) {
  for (const int64_t n : kLengths) {
    for (const bool coarse : {false, true}) {
      const std::vector<float> x = random_row(n, 3, coarse);
      const auto best = std::max_element(x.begin(), x.end());
      const LogitMax max = scan_max(x.data(), n);
      EXPECT_TRUE(max.finite);
      EXPECT_EQ(max.value, *best);
      EXPECT_EQ(index_of(x.data(), n, max.value), best - x.begin());
    }
  }
}

TEST(LogitScan, SeesEveryValueThatIsNotFinite) {
  for (const int64_t n : {int64_t{1}, int64_t{17}, int64_t{64}, int64_t{100}}) {
    for (int64_t at = 0; at < n; ++at) {
      for (const float bad :
           {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
            -std::numeric_limits<float>::infinity()}) {
        std::vector<float> x = random_row(n, 5);
        x[static_cast<size_t>(at)] = bad;
        EXPECT_FALSE(scan_max(x.data(), n).finite);
      }
    }
  }
}

TEST(LogitScan, ExpIsCloseToExp) {
  EXPECT_EQ(exp_negative(0), 1.0f);
  EXPECT_EQ(exp_negative(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(exp_negative(-1000), 0.0f);
  for (double x = 0; x > -86.9; x -= 0.00137) {
    const auto rounded = static_cast<float>(x);
    const double exact = std::exp(static_cast<double>(rounded));
    ASSERT_NEAR(exp_negative(rounded), exact, 3e-7 * exact) << x;
  }
}

TEST(LogitScan, SumOfExpAndItsChunks) {
  for (const int64_t n : kLengths) {
    const std::vector<float> x = random_row(n, 11);
    const float max = scan_max(x.data(), n).value;
    for (const float scale : {1.0f, 0.3f, 5.0f}) {
      double exact = 0;
      for (const float v : x)
        exact += std::exp((static_cast<double>(v) - max) * static_cast<double>(scale));
      std::vector<double> chunks{99};
      const double sum = sum_exp(x.data(), n, max, scale, &chunks);
      EXPECT_NEAR(sum, exact, 2e-6 * exact);
      EXPECT_EQ(static_cast<int64_t>(chunks.size()), (n + kExpChunk - 1) / kExpChunk);
      double total = 0;
      for (const double c : chunks) total += c;
      EXPECT_EQ(total, sum);
    }
  }
}

TEST(LogitScan, LargestAgreesWithASort) {
  for (const int64_t n : kLengths) {
    for (const bool coarse : {false, true}) {  // coarse: many equal values
      const std::vector<float> x = random_row(n, 17, coarse);
      std::vector<Candidate> sorted;
      for (int64_t i = 0; i < n; ++i)
        sorted.push_back({static_cast<int32_t>(i), x[static_cast<size_t>(i)]});
      std::sort(sorted.begin(), sorted.end(), better);
      for (const int64_t k :
           {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{64}, int64_t{384}, int64_t{385}, n}) {
        std::vector<Candidate> out{{1, 1}};
        largest(x.data(), n, k, out);
        ASSERT_EQ(static_cast<int64_t>(out.size()), std::min(k, n));
        for (size_t i = 0; i < out.size(); ++i) {
          ASSERT_EQ(out[i].id, sorted[i].id);
          ASSERT_EQ(out[i].value, sorted[i].value);
        }
      }
    }
  }
}

TEST(LogitScan, AtLeastKeepsAllThatReachTheThreshold) {
  for (const int64_t n : kLengths) {
    const std::vector<float> x = random_row(n, 23, true);
    std::vector<Candidate> out;
    at_least(x.data(), n, 2.0f, out);
    size_t next = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (x[static_cast<size_t>(i)] < 2.0f) continue;
      ASSERT_LT(next, out.size());
      EXPECT_EQ(out[next++].id, i);
    }
    EXPECT_EQ(next, out.size());
  }
}

}  // namespace
}  // namespace deltad
