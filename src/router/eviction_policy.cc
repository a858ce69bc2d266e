#include "router/eviction_policy.h"

#include <algorithm>
#include <cmath>

namespace deltad {

double DecayedCount::add(double log_count, TimePoint now) const {
  const double one = age(now);
  const double high = std::max(log_count, one), low = std::min(log_count, one);
  return high + std::log2(1 + std::exp2(low - high));
}

double DecayedCount::value(double log_count, TimePoint now) const {
  return std::exp2(log_count - age(now));
}

double DecayedCount::rate(double log_count, TimePoint now) const {
  return value(log_count, now) * std::log(2.0) / half_life_;
}

}  // namespace deltad
