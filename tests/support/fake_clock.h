// A clock that goes only when told. Any thread.
#pragma once

#include <atomic>
#include <chrono>

#include "base/clock.h"

namespace deltad::testing {

class FakeClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(Duration(ticks_.load())); }
  void advance(double seconds) { ticks_ += from_seconds(seconds).count(); }

 private:
  std::atomic<Duration::rep> ticks_{Duration(std::chrono::hours(1)).count()};
};

}  // namespace deltad::testing
