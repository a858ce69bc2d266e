// TokenBucket: a rate with room for bursts. Time comes in from outside. Not locked.
#pragma once

#include "base/clock.h"

namespace deltad {

// Fills up at a rate, to its size. May be overdrawn: then it fills up from below zero.
class TokenBucket {
 public:
  TokenBucket(double per_second, double size)
      : per_second_(per_second), size_(size), level_(size) {}

  // Seconds until there is at least one; 0: there is.
  double wait(TimePoint now) const;
  void take(double count, TimePoint now);

 private:
  double level(TimePoint now) const;

  double per_second_, size_;
  double level_;  // at since_
  TimePoint since_{};
};

// A wait as whole seconds to tell a client: at least one, at most a day.
int retry_seconds(double wait);

}  // namespace deltad
