// Spinning for a short while: waiting for what comes within microseconds, before one sleeps.
#pragma once

#include <chrono>

namespace deltad {

constexpr std::chrono::microseconds kSpin{50};

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until done() or for kSpin; says whether done() came true.
template <typename Done>
bool spin(const Done& done) {
  constexpr int kPausesPerClock = 16;  // reading the clock costs about as much as one pause
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  for (;;) {
    for (int i = 0; i < kPausesPerClock; ++i) {
      if (done()) return true;
      pause_briefly();
    }
    if (std::chrono::steady_clock::now() >= deadline) return done();
  }
}

}  // namespace deltad
