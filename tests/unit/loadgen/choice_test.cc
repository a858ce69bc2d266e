// Arrivals and model choice against the distributions that they claim. Seeds are fixed.
#include "loadgen/choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace deltad::loadgen {
namespace {

constexpr int kMany = 40000;

std::vector<double> gaps(double rate, double shape, uint64_t seed) {
  Arrivals arrivals(rate, shape, seed);
  std::vector<double> gaps;
  double last = 0;
  for (int i = 0; i < kMany; ++i) {
    const double at = arrivals.next();
    gaps.push_back(at - last);
    last = at;
  }
  return gaps;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Squared coefficient of variation.
double variation(const std::vector<double>& values) {
  const double m = mean(values);
  double sum = 0;
  for (double v : values) sum += (v - m) * (v - m);
  return sum / static_cast<double>(values.size()) / (m * m);
}

TEST(Arrivals, PoissonGapsAreExponential) {
  for (const double rate : {0.5, 10.0, 2000.0}) {
    std::vector<double> values = gaps(rate, 1, 7);
    std::sort(values.begin(), values.end());
    double distance = 0;  // Kolmogorov and Smirnov's
    for (size_t i = 0; i < values.size(); ++i) {
      const double expected = 1 - std::exp(-rate * values[i]);
      distance = std::max({distance, std::abs(expected - static_cast<double>(i) / kMany),
                           std::abs(expected - static_cast<double>(i + 1) / kMany)});
    }
    EXPECT_LT(distance * std::sqrt(kMany), 1.63) << rate;  // passed by 99 of 100 fair samples
  }
}

TEST(Arrivals, PoissonCountsHaveTheirMeanAsVariance) {
  Arrivals arrivals(100, 1, 3);
  std::vector<double> counts(300, 0);  // of each second
  for (double at = arrivals.next(); at < 300; at = arrivals.next()) {
    ++counts[static_cast<size_t>(at)];
  }
  EXPECT_NEAR(mean(counts), 100, 2.5);
  EXPECT_NEAR(variation(counts) * mean(counts), 1, 0.25);
}

TEST(Arrivals, ShapeSetsTheBurstinessAndNotTheRate) {
  for (const double shape : {0.1, 0.25, 1.0, 4.0}) {
    const std::vector<double> values = gaps(20, shape, 11);
    EXPECT_NEAR(mean(values) * 20, 1, 4 / std::sqrt(shape * kMany)) << shape;
    EXPECT_NEAR(variation(values) * shape, 1, 0.15) << shape;
  }
}

TEST(Arrivals, ASeedGivesTheSameTimesAndAnotherGivesOthers) {
  EXPECT_EQ(gaps(5, 0.5, 1), gaps(5, 0.5, 1));
  EXPECT_NE(gaps(5, 0.5, 1), gaps(5, 0.5, 2));
  EXPECT_NE(gaps(5, 0.5, 1), gaps(5, 0.5, uint64_t{1} << 32 | 1));
}

TEST(Zipf, ProbabilitiesFollowThePower) {
  const Zipf zipf(100, 1.2);
  double sum = 0;
  for (size_t k = 0; k < 100; ++k) {
    sum += zipf.probability(k);
    EXPECT_NEAR(zipf.probability(k) / zipf.probability(0), std::pow(k + 1.0, -1.2), 1e-9);
  }
  EXPECT_NEAR(sum, 1, 1e-12);
}

TEST(Zipf, PicksAsOftenAsItsProbabilitiesSay) {
  for (const double exponent : {0.0, 0.6, 1.0, 1.4}) {
    const Zipf zipf(14, exponent);
    std::mt19937_64 random = random_stream(5, Stream::kModels);
    std::vector<double> counts(14, 0);
    for (int i = 0; i < kMany; ++i) ++counts.at(zipf.pick(random));
    double chi_square = 0;
    for (size_t k = 0; k < 14; ++k) {
      const double expected = zipf.probability(k) * kMany;
      chi_square += (counts[k] - expected) * (counts[k] - expected) / expected;
    }
    EXPECT_LT(chi_square, 27.7) << exponent;  // 13 degrees of freedom, 99 of 100 fair samples
  }
}

TEST(Zipf, OneModelIsAlwaysPicked) {
  std::mt19937_64 random = random_stream(0, Stream::kModels);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Zipf(1, 1).pick(random), 0u);
}

}  // namespace
}  // namespace deltad::loadgen
