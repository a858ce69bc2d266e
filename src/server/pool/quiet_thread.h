// QuietThread: work that takes only the processor time that others leave, and what it needs of
// them. A thread that the system runs last must hold no lock that others wait for: it may be off
// the processor for long while it holds it. So everything of that kind is called on the thread that
// waits for the work. One work at a time; called by one thread.
#pragma once

#include <functional>
#include <thread>

#include "base/mutex.h"
#include "base/scheduling.h"

namespace deltad {

class QuietThread {
 public:
  // Returns when the work is done; meanwhile the caller's thread carries out what it call()s.
  void run(const std::function<void()>& work) EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      done_ = false;
    }
    std::thread thread([&] {
      run_behind_others();
      work();
      MutexLock lock(mutex_);
      done_ = true;
      changed_.notify_all();
    });
    serve();
    thread.join();
  }
  // From the work: `what` on the thread that waits; returns when that is done.
  void call(const std::function<void()>& what) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    called_ = &what;
    changed_.notify_all();
    while (called_ != nullptr) changed_.wait(mutex_);
  }

 private:
  void serve() EXCLUDES(mutex_) {
    for (;;) {
      const std::function<void()>* what = nullptr;
      {
        MutexLock lock(mutex_);
        while (called_ == nullptr && !done_) changed_.wait(mutex_);
        if (called_ == nullptr) return;
        what = called_;
      }
      (*what)();
      MutexLock lock(mutex_);
      called_ = nullptr;
      changed_.notify_all();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  const std::function<void()>* called_ GUARDED_BY(mutex_) = nullptr;
  bool done_ GUARDED_BY(mutex_) = false;
};

}  // namespace deltad
