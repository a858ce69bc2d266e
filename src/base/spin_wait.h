// SpinWait: waiting for other threads in two stages, first spinning for at most 50 µs and then
// asleep. What is waited for is told by atomics, which both sides access in sequentially consistent
// order: so either the sleeper sees the change, or who made it sees the sleeper.
#pragma once

#include <atomic>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/spin.h"

namespace deltad {

class SpinWait {
 public:
  // spins: false where threads share cores, and spinning would keep the others off.
  explicit SpinWait(bool spins) : spins_(spins) {}

  // False if done() is not true by the deadline. Several threads may wait.
  template <typename Done>
  bool await(const Done& done, TimePoint deadline) EXCLUDES(mutex_) {
    if (spins_ ? spin(done) : done()) return true;
    MutexLock lock(mutex_);
    sleepers_.fetch_add(1);
    bool in_time = true;
    while (!done() && in_time) {
      if (deadline == TimePoint::max())
        wake_.wait(mutex_);
      else
        in_time = wake_.wait_until(mutex_, deadline);
    }
    sleepers_.fetch_sub(1);
    return done();
  }

  // After a change of what done() looks at.
  void notify() EXCLUDES(mutex_) {
    if (sleepers_.load() == 0) return;
    MutexLock lock(mutex_);
    wake_.notify_all();
  }

 private:
  const bool spins_;
  std::atomic<int> sleepers_{0};
  Mutex mutex_;
  CondVar wake_;
};

}  // namespace deltad
