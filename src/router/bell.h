// Bell: wakes one thread, from any thread and under any lock. A ring that nobody hears is kept for
// the next wait.
#pragma once

#include "base/clock.h"
#include "base/mutex.h"

namespace deltad {

class Bell {
 public:
  void ring() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    rung_ = true;
    heard_.notify_one();
  }
  // Returns when it was rung since the last wait, or at the time.
  void wait_until(TimePoint time) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (!rung_) {
      if (time == TimePoint::max())
        heard_.wait(mutex_);
      else if (!heard_.wait_until(mutex_, time))
        break;
    }
    rung_ = false;
  }

 private:
  Mutex mutex_;
  CondVar heard_;
  bool rung_ GUARDED_BY(mutex_) = false;
};

}  // namespace deltad
