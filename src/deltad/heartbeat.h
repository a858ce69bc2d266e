// Heartbeat: calls back at even times, on a thread of its own, until it is destroyed.
#pragma once

#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

namespace deltad {

class Heartbeat {
 public:
  Heartbeat(Duration every, std::function<void()> beat);
  ~Heartbeat();

 private:
  void run(Duration every, const std::function<void()>& beat) EXCLUDES(mutex_);

  Mutex mutex_;
  CondVar wake_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace deltad
