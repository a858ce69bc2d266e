// Intervals against published values and against what a simulation of their promise needs.
#include "eval/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace deltad {
namespace {

TEST(Wilson, HasTheTextbookValues) {
  // Newcombe 1998, table I, method 3.
  const struct {
    int64_t hits, n;
    double low, high;
  } cases[] = {{81, 263, 0.2553, 0.3662},
               {15, 148, 0.0624, 0.1605},
               {0, 20, 0, 0.1611},
               {1, 29, 0.0061, 0.1718},
               {29, 29, 0.8830, 1}};
  for (const auto& c : cases) {
    const Interval interval = wilson_interval(c.hits, c.n);
    EXPECT_NEAR(interval.low, c.low, 1e-4) << c.hits << "/" << c.n;
    EXPECT_NEAR(interval.high, c.high, 1e-4) << c.hits << "/" << c.n;
  }
  EXPECT_EQ(wilson_interval(0, 0).high, 1);
}

TEST(PassageMean, WeighsByTokens) {
  PassageMean mean;
  mean.add(4, 2);
  EXPECT_FALSE(mean.interval().has_value());
  mean.add(5, 8);
  EXPECT_DOUBLE_EQ(mean.mean(), 0.9);
  EXPECT_EQ(mean.tokens(), 10);
  // Residuals 4 − 0.9·2 = 2.2 and 5 − 0.9·8 = −2.2.
  const double error = std::sqrt(2.0 / 1 * 2 * 2.2 * 2.2) / 10;
  EXPECT_NEAR(mean.interval()->high, 0.9 + 1.959964 * error, 1e-6);
  EXPECT_NEAR(mean.interval()->low, 0.9 - 1.959964 * error, 1e-6);
}

// Tokens of one passage share its level, so an interval over tokens would be far too narrow.
TEST(PassageMean, CoversTheTruthNineteenTimesInTwenty) {
  std::mt19937 random(3);
  std::normal_distribution<double> level(2, 1);
  int covered = 0;
  constexpr int kTrials = 1000;
  for (int trial = 0; trial < kTrials; ++trial) {
    PassageMean mean;
    for (int passage = 0; passage < 60; ++passage) {
      const double tokens = 20 + static_cast<double>(random() % 30);
      mean.add(level(random) * tokens, static_cast<int64_t>(tokens));
    }
    const Interval interval = *mean.interval();
    covered += interval.low <= 2 && 2 <= interval.high;
  }
  EXPECT_NEAR(covered, 0.95 * kTrials, 30);
}

}  // namespace
}  // namespace deltad
