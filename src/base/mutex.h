// Mutex, MutexLock, CondVar: the standard ones, annotated so that Clang's -Wthread-safety checks
// GUARDED_BY.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define DELTAD_ATTRIBUTE(x) __attribute__((x))
#else
#define DELTAD_ATTRIBUTE(x)
#endif
#define CAPABILITY(x) DELTAD_ATTRIBUTE(capability(x))
#define SCOPED_CAPABILITY DELTAD_ATTRIBUTE(scoped_lockable)
#ifndef GUARDED_BY  // Abseil, below gRPC, has the same two
#define GUARDED_BY(x) DELTAD_ATTRIBUTE(guarded_by(x))
#endif
#define REQUIRES(...) DELTAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) DELTAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) DELTAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define RELEASE(...) DELTAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#ifndef NO_THREAD_SAFETY_ANALYSIS
#define NO_THREAD_SAFETY_ANALYSIS DELTAD_ATTRIBUTE(no_thread_safety_analysis)
#endif

namespace deltad {

class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // Waits once; call it in a loop that tests the condition.
  void wait(Mutex& mutex) REQUIRES(mutex) NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // False if the time is up.
  bool wait_until(Mutex& mutex, std::chrono::steady_clock::time_point deadline)
      REQUIRES(mutex) NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = cv_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void notify_one() { cv_.notify_one(); }
  void notify_all() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace deltad
