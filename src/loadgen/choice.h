// The random choices of a load: when the next request arrives and which model it asks for. Each
// draws from a generator of its own, so that the same seed gives the same requests whatever else is
// asked for. One thread.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace deltad::loadgen {

// Separate streams of random numbers from one seed.
enum class Stream : uint32_t { kArrivals = 1, kModels = 2, kLengths = 3, kPrompts = 4 };
std::mt19937_64 random_stream(uint64_t seed, Stream stream);

// A renewal process: gaps are gamma distributed with mean 1 / rate. Shape 1 is Poisson; below 1
// arrivals come in bursts (the gaps' squared coefficient of variation is 1 / shape), above 1 they
// are more regular than Poisson.
class Arrivals {
 public:
  Arrivals(double rate, double shape, uint64_t seed);
  double next();  // seconds since the start

 private:
  std::mt19937_64 random_;
  std::gamma_distribution<double> gap_;
  double at_ = 0;
};

// Picks 0 … n−1, where k is as likely as 1 / (k + 1)^exponent. Exponent 0: all alike.
class Zipf {
 public:
  Zipf(size_t n, double exponent);
  size_t pick(std::mt19937_64& random) const;
  double probability(size_t k) const;

 private:
  std::vector<double> cumulative_;  // ends with 1
};

}  // namespace deltad::loadgen
