// WorkThreads: the threads on which gRPC calls are answered, with their timers. gRPC's own threads
// only hand work over, so that none of them waits for a tokenizer. Owned by the server. A WorkLine
// is one call's: its work runs one after the other, on any of the threads. Any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace deltad {

class WorkThreads {
 public:
  using Work = std::function<void()>;
  using Timer = std::pair<TimePoint, uint64_t>;  // never reused

  // real_time: see run_promptly() (base/scheduling.h).
  WorkThreads(int threads, bool real_time);
  ~WorkThreads();  // stop()

  // Runs work soon. False: after stop(), it is dropped.
  bool post(Work work) EXCLUDES(mutex_);
  // Runs work at that time unless it is forgotten before.
  Timer at(TimePoint time, Work work) EXCLUDES(mutex_);
  void forget(const Timer& timer) EXCLUDES(mutex_);
  // Forgets the timers, and returns when all work has been done.
  void stop() EXCLUDES(mutex_);

 private:
  void run() EXCLUDES(mutex_);
  Work next() REQUIRES(mutex_);
  static void perform(Work work);

  Mutex mutex_;
  CondVar changed_;
  std::deque<Work> work_ GUARDED_BY(mutex_);
  std::map<Timer, Work> timers_ GUARDED_BY(mutex_);
  uint64_t last_timer_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false, stopped_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

class WorkLine : public std::enable_shared_from_this<WorkLine> {
 public:
  explicit WorkLine(WorkThreads& threads) : threads_(threads) {}

  // Never runs work inside this call, nor beside other work of this line.
  void post(WorkThreads::Work work) EXCLUDES(mutex_);

 private:
  void run_one() EXCLUDES(mutex_);
  void queue() EXCLUDES(mutex_);

  WorkThreads& threads_;
  Mutex mutex_;
  std::deque<WorkThreads::Work> work_ GUARDED_BY(mutex_);
  bool queued_ GUARDED_BY(mutex_) = false;  // run_one() is
};

}  // namespace deltad
