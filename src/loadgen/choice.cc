#include "loadgen/choice.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace deltad::loadgen {

std::mt19937_64 random_stream(uint64_t seed, Stream stream) {
  std::seed_seq words{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                      static_cast<uint32_t>(stream)};
  return std::mt19937_64(words);
}

Arrivals::Arrivals(double rate, double shape, uint64_t seed)
    : random_(random_stream(seed, Stream::kArrivals)), gap_(shape, 1 / (rate * shape)) {
  CHECK(rate > 0 && shape > 0, "rate and shape must be positive");
}

double Arrivals::next() {
  at_ += gap_(random_);
  return at_;
}

Zipf::Zipf(size_t n, double exponent) {
  CHECK(n > 0, "nothing to pick from");
  double sum = 0;
  for (size_t k = 0; k < n; ++k) {
    sum += std::pow(static_cast<double>(k + 1), -exponent);
    cumulative_.push_back(sum);
  }
  for (double& c : cumulative_) c /= sum;
  cumulative_.back() = 1;
}

size_t Zipf::pick(std::mt19937_64& random) const {
  const double u = std::uniform_real_distribution<double>(0, 1)(random);
  const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end(), u);
  return std::min(static_cast<size_t>(found - cumulative_.begin()), cumulative_.size() - 1);
}

double Zipf::probability(size_t k) const {
  return cumulative_[k] - (k == 0 ? 0 : cumulative_[k - 1]);
}

}  // namespace deltad::loadgen
