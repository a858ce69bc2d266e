// A clock that goes only when told.
#pragma once

#include <chrono>

#include "base/clock.h"

namespace deltad::testing {

class FakeClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(double seconds) {
    now_ += std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  }
  void set(TimePoint time) { now_ = time; }

 private:
  TimePoint now_{std::chrono::hours(1)};
};

}  // namespace deltad::testing
