#include "base/token_bucket.h"

#include <algorithm>
#include <cmath>

namespace deltad {
namespace {

constexpr double kLongestRetry = 86400;  // seconds
constexpr double kRounding = 1e-6;       // what filling up may fall short by

}  // namespace

double TokenBucket::level(TimePoint now) const {
  return std::min(size_, level_ + per_second_ * seconds(now - since_));
}

double TokenBucket::wait(TimePoint now) const {
  const double missing = 1 - level(now);
  return missing <= kRounding ? 0 : missing / per_second_;
}

void TokenBucket::take(double count, TimePoint now) {
  level_ = level(now) - count;
  since_ = now;
}

int retry_seconds(double wait) {
  return static_cast<int>(std::ceil(std::clamp(wait, 1.0, kLongestRetry)));
}

}  // namespace deltad
