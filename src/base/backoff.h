// Backoff: pauses between two questions whether something has ended that cannot tell by itself. At
// first the thread only gives way; later it sleeps for a small part of what it has waited, so that
// at most that part is lost. One thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"

namespace deltad {

class Backoff {
 public:
  void pause() {
    const Duration waited = Clock::real().now() - began_;
    if (waited < kAwake)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::min<Duration>(waited / kPart, kLongest));
  }

 private:
  static constexpr int kPart = 256;
  // Sleeps shorter than a 256th of this end late, by the kernel's timers (50 us).
  static constexpr Duration kAwake = std::chrono::milliseconds(16);
  static constexpr Duration kLongest = std::chrono::milliseconds(1);

  const TimePoint began_ = Clock::real().now();
};

}  // namespace deltad
