// RankThreads: the threads on which ranks run their steps: rank 0 is the thread that calls run(),
// the others have one each, which sleeps while there is no step. Owned by ParallelTransformer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/spin_wait.h"

namespace deltad {

class RankThreads {
 public:
  // work(rank) is a rank's part of a step; it must not throw.
  RankThreads(int ranks, std::function<void(int rank)> work);
  // Waits for the ranks that are still at work.
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // Calls work on every rank at once, and returns when rank 0 has done its part. Before the next
  // run all have done theirs.
  void run();
  // Then: waits until all have done their part. −1, or a rank that had not by the deadline.
  int await(TimePoint deadline);

 private:
  void serve(int rank);

  const std::function<void(int rank)> work_;
  SpinWait wait_;
  std::atomic<uint64_t> begun_{0};  // runs
  std::atomic<bool> stop_{false};
  std::vector<std::atomic<uint64_t>> done_;  // runs, of rank 1 + index
  std::vector<std::thread> threads_;
};

}  // namespace deltad
