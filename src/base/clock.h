// Time as an interface, so that tests set it: steady, not wall time.
#pragma once

#include <chrono>
#include <cstdint>

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

// Wall time, for what is told to people and kept in files: whole seconds since 1970.
inline int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace deltad
