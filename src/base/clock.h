// Time as an interface, so that tests set it. Steady, not wall time.
#pragma once

#include <chrono>

namespace deltad {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const { return std::chrono::steady_clock::now(); }
  static const Clock& real();
};

inline const Clock& Clock::real() {
  static const Clock clock;
  return clock;
}

inline double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }
inline Duration from_seconds(double s) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s));
}

}  // namespace deltad
