#include "delta/work_list.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace deltad {
namespace {

class WorkList {
 public:
  WorkList(int64_t n, const std::function<Status(int64_t)>& work) : n_(n), work_(work) {}

  void run() {
    while (!failed_.load(std::memory_order_relaxed)) {
      const int64_t i = next_.fetch_add(1, std::memory_order_relaxed);
      if (i >= n_) return;
      Status status = run_one(i);
      if (!status.ok()) record(std::move(status));
    }
  }
  Status result() {
    MutexLock lock(mutex_);
    return first_error_;
  }

 private:
  Status run_one(int64_t i) {
    try {
      return work_(i);
    } catch (const std::bad_alloc&) {
      return internal_error("out of memory");
    } catch (const std::exception& error) {
      return internal_error(error.what());
    }
  }
  void record(Status status) {
    MutexLock lock(mutex_);
    if (first_error_.ok()) first_error_ = std::move(status);
    failed_.store(true, std::memory_order_relaxed);
  }

  const int64_t n_;
  const std::function<Status(int64_t)>& work_;
  std::atomic<int64_t> next_{0};
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  Status first_error_ GUARDED_BY(mutex_);
};

}  // namespace

Status run_work_list(int64_t n, int threads, const std::function<Status(int64_t)>& work) {
  WorkList list(n, work);
  std::vector<std::thread> helpers;
  const int64_t count = std::min<int64_t>(threads, n) - 1;
  try {
    for (int64_t i = 0; i < count; ++i) helpers.emplace_back([&list] { list.run(); });
  } catch (const std::system_error&) {
    // No more threads to be had: those that started, and this one, do the work.
  }
  list.run();
  for (std::thread& helper : helpers) helper.join();
  return list.result();
}

}  // namespace deltad
