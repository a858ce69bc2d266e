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
  WorkList(const std::vector<int64_t>& bounds, const std::function<Status(int64_t)>& work)
      : bounds_(bounds), work_(work), next_(bounds.size() - 1) {
    for (size_t share = 0; share < next_.size(); ++share) next_[share].store(bounds[share]);
  }

  void run(size_t share) {
    while (!failed_.load(std::memory_order_relaxed)) {
      const int64_t i = next_[share].fetch_add(1, std::memory_order_relaxed);
      if (i >= bounds_[share + 1]) return;
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

  const std::vector<int64_t>& bounds_;
  const std::function<Status(int64_t)>& work_;
  std::vector<std::atomic<int64_t>> next_;  // of each share
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  Status first_error_ GUARDED_BY(mutex_);
};

}  // namespace

Status run_work_list(int64_t n, int threads, const std::function<Status(int64_t)>& work) {
  return run_work_shares({0, n}, threads, work);
}

Status run_work_shares(const std::vector<int64_t>& bounds, int threads,
                       const std::function<Status(int64_t)>& work) {
  WorkList list(bounds, work);
  const auto shares = static_cast<int64_t>(bounds.size()) - 1;
  const int64_t count = std::max<int64_t>(shares, std::min<int64_t>(threads, bounds.back()));
  std::vector<std::thread> helpers;
  try {
    for (int64_t i = 1; i < count; ++i)
      helpers.emplace_back([&list, share = static_cast<size_t>(i % shares)] { list.run(share); });
  } catch (const std::system_error&) {
    // No more threads to be had: this one does what no other is there for.
  }
  list.run(0);
  for (int64_t share = static_cast<int64_t>(helpers.size()) + 1; share < shares; ++share)
    list.run(static_cast<size_t>(share));
  for (std::thread& helper : helpers) helper.join();
  return list.result();
}

}  // namespace deltad
