// RateLimit: at most so many bytes a second, for all that share it. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/mutex.h"

namespace deltad {

class RateLimit {
 public:
  // bytes_per_second > 0. The clock outlives it.
  explicit RateLimit(int64_t bytes_per_second = 1, const Clock& clock = Clock::real())
      : bytes_per_second_(static_cast<double>(bytes_per_second)), clock_(clock) {}
  void set(int64_t bytes_per_second) { bytes_per_second_ = static_cast<double>(bytes_per_second); }

  // When `bytes` more may be read: each call's turn is after the bytes of those before it. Time in
  // which nobody asked is not made up for.
  TimePoint admit(int64_t bytes) {
    MutexLock lock(mutex_);
    const TimePoint now = clock_.now();
    const TimePoint turn = next_ > now ? next_ : now;
    next_ = turn + time_of(bytes);
    return turn;
  }
  // Bytes that were admitted and then not read.
  void give_back(int64_t bytes) {
    MutexLock lock(mutex_);
    next_ -= time_of(bytes);
  }
  Duration time_of(int64_t bytes) const {
    return from_seconds(static_cast<double>(bytes) / bytes_per_second_);
  }

 private:
  std::atomic<double> bytes_per_second_;
  const Clock& clock_;
  Mutex mutex_;
  TimePoint next_ GUARDED_BY(mutex_){};
};

}  // namespace deltad
