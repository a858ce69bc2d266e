#include "deltad/heartbeat.h"

#include <utility>

namespace deltad {

Heartbeat::Heartbeat(Duration every, std::function<void()> beat)
    : thread_([this, every, beat = std::move(beat)] { run(every, beat); }) {}

Heartbeat::~Heartbeat() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  thread_.join();
}

void Heartbeat::run(Duration every, const std::function<void()>& beat) {
  TimePoint next = Clock::real().now();
  for (;;) {
    beat();
    next += every;
    MutexLock lock(mutex_);
    while (!stopping_ && Clock::real().now() < next) (void)wake_.wait_until(mutex_, next);
    if (stopping_) return;
  }
}

}  // namespace deltad
