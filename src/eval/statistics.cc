#include "eval/statistics.h"

#include <algorithm>
#include <cmath>

namespace deltad {
namespace {
constexpr double kZ = 1.959963984540054;  // 97.5 % of a normal distribution lie below
}

Interval wilson_interval(int64_t hits, int64_t n) {
  if (n == 0) return {0, 1};
  const double count = static_cast<double>(n), p = static_cast<double>(hits) / count;
  const double z2 = kZ * kZ, center = (p + z2 / (2 * count)) / (1 + z2 / count);
  const double half =
      kZ / (1 + z2 / count) * std::sqrt(p * (1 - p) / count + z2 / (4 * count * count));
  return {hits == 0 ? 0 : std::max(0.0, center - half),
          hits == n ? 1 : std::min(1.0, center + half)};
}

void PassageMean::add(double sum, int64_t tokens) {
  parts_.push_back({sum, tokens});
  sum_ += sum;
  tokens_ += tokens;
}

double PassageMean::mean() const { return tokens_ > 0 ? sum_ / static_cast<double>(tokens_) : 0; }

std::optional<Interval> PassageMean::interval() const {
  if (parts_.size() < 2 || tokens_ == 0) return std::nullopt;
  const double count = static_cast<double>(parts_.size()), m = mean();
  double squares = 0;
  for (const Part& part : parts_) {
    const double off = part.sum - m * static_cast<double>(part.tokens);
    squares += off * off;
  }
  const double error = std::sqrt(count / (count - 1) * squares) / static_cast<double>(tokens_);
  return Interval{m - kZ * error, m + kZ * error};
}

}  // namespace deltad
