#include "server/grpc/work_threads.h"

#include <algorithm>
#include <exception>

#include "base/log.h"
#include "base/scheduling.h"

namespace deltad {

WorkThreads::WorkThreads(int threads, bool real_time) {
  for (int i = 0; i < std::max(1, threads); ++i)
    threads_.emplace_back([this, real_time] {
      run_promptly(real_time);
      run();
    });
}

WorkThreads::~WorkThreads() { stop(); }

bool WorkThreads::post(Work work) {
  MutexLock lock(mutex_);
  if (stopped_) return false;
  work_.push_back(std::move(work));
  changed_.notify_one();
  return true;
}

WorkThreads::Timer WorkThreads::at(TimePoint time, Work work) {
  MutexLock lock(mutex_);
  const Timer timer{time, ++last_timer_};
  if (stopping_) return timer;
  timers_.emplace(timer, std::move(work));
  // Those that sleep until a later one must look again.
  if (timers_.begin()->first == timer) changed_.notify_one();
  return timer;
}

void WorkThreads::forget(const Timer& timer) {
  MutexLock lock(mutex_);
  timers_.erase(timer);
}

void WorkThreads::stop() {
  std::map<Timer, Work> timers;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    timers.swap(timers_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
  std::deque<Work> rest;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    rest.swap(work_);
  }
  for (Work& work : rest) perform(std::move(work));
}

// What is due: a timer before what was posted. Waits for it; empty: stopping, and all is done.
WorkThreads::Work WorkThreads::next() {
  Work work;
  for (;;) {
    const auto first = timers_.begin();
    if (first != timers_.end() && first->first.first <= Clock::real().now()) {
      work = std::move(first->second);
      timers_.erase(first);
      break;
    }
    if (!work_.empty()) {
      work = std::move(work_.front());
      work_.pop_front();
      break;
    }
    if (stopping_) return work;
    if (first == timers_.end())
      changed_.wait(mutex_);
    else
      changed_.wait_until(mutex_, first->first.first);
  }
  // This thread may have been woken for a timer that another one is now to wait for.
  if (!work_.empty() || !timers_.empty()) changed_.notify_one();
  return work;
}

void WorkThreads::run() {
  for (;;) {
    Work work;
    {
      MutexLock lock(mutex_);
      work = next();
    }
    if (!work) return;
    perform(std::move(work));
  }
}

void WorkThreads::perform(Work work) {
  try {
    work();
  } catch (const std::exception& e) {
    log_error("work of a gRPC call failed: {}", e.what());
  }
}

void WorkLine::post(WorkThreads::Work work) {
  {
    MutexLock lock(mutex_);
    work_.push_back(std::move(work));
    if (queued_) return;
    queued_ = true;
  }
  queue();
}

void WorkLine::queue() {
  if (threads_.post([self = shared_from_this()] { self->run_one(); })) return;
  std::deque<WorkThreads::Work> dropped;  // may hold the last of this line: not under the mutex
  MutexLock lock(mutex_);
  dropped.swap(work_);
  queued_ = false;  // so that what comes now is dropped, too: kept, it would keep its line
}

void WorkLine::run_one() {
  WorkThreads::Work work;
  {
    MutexLock lock(mutex_);
    work = std::move(work_.front());
    work_.pop_front();
  }
  // The rest is queued anew, behind other lines', also when this work throws.
  struct Again {
    WorkLine& line;
    ~Again() {
      {
        MutexLock lock(line.mutex_);
        line.queued_ = !line.work_.empty();
        if (!line.queued_) return;
      }
      line.queue();
    }
  } again{*this};
  work();
}

}  // namespace deltad
