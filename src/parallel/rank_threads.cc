#include "parallel/rank_threads.h"

#include <pthread.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/worker_team.h"

namespace deltad {

RankThreads::RankThreads(int ranks, std::function<void(int rank)> work)
    : work_(std::move(work)),
      wait_(ranks <= WorkerTeam::cores()),
      done_(static_cast<size_t>(ranks) - 1) {
  for (int rank = 1; rank < ranks; ++rank) {
    threads_.emplace_back([this, rank] { serve(rank); });
    // For who looks at the process from outside.
    (void)pthread_setname_np(threads_.back().native_handle(),
                             ("rank " + std::to_string(rank)).c_str());
  }
}

RankThreads::~RankThreads() {
  stop_.store(true);
  wait_.notify();
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::run() {
  begun_.fetch_add(1);
  wait_.notify();
  work_(0);
}

int RankThreads::await(TimePoint deadline) {
  const uint64_t run = begun_.load();
  const auto missing = [&] {
    return std::find_if(done_.begin(), done_.end(),
                        [&](const std::atomic<uint64_t>& done) { return done.load() != run; });
  };
  if (wait_.await([&] { return missing() == done_.end(); }, deadline)) return -1;
  const auto first = missing();
  return first == done_.end() ? -1 : static_cast<int>(first - done_.begin()) + 1;
}

void RankThreads::serve(int rank) {
  std::atomic<uint64_t>& done = done_[static_cast<size_t>(rank) - 1];
  for (uint64_t run = 1;; ++run) {
    wait_.await([&] { return stop_.load() || begun_.load() >= run; }, TimePoint::max());
    if (begun_.load() < run) return;
    work_(rank);
    done.store(run);
    wait_.notify();
  }
}

}  // namespace deltad
