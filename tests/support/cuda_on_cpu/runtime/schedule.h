// What has been handed over and has not run yet, and when it runs. Work runs on the thread that
// waits for it (or, eagerly or at random, on any that calls the runtime); host functions, and what
// nobody asks for in a while, on a thread of its own. Under the runtime's lock.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/cuda_on_cpu/runtime/emulated_gpu.h"
#include "tests/support/cuda_on_cpu/runtime/operation.h"

namespace deltad::emulated_gpu {

using OperationPtr = std::shared_ptr<Operation>;

class Schedule {
 public:
  explicit Schedule(Gpu& gpu);
  ~Schedule();

  Timeline new_timeline();
  OperationPtr add(std::shared_ptr<const Work> work, Timeline timeline,
                   std::vector<OperationPtr> after);
  // The operation is no part of its collective any more, and does nothing.
  void drop_out(Operation& operation);

  // At each call of the runtime.
  void at_call();
  // A question about it: moves on by one step, so that asking in a loop ends.
  void nudge(const OperationPtr& target);
  // Gives up the lock while others must act. Comes back early if the operation's device breaks.
  void wait_for(const OperationPtr& target);

  // Runs all that can run.
  void drain();
  const std::deque<OperationPtr>& pending() const { return pending_; }
  // Ends the driver's thread: what is pending never runs.
  void stop();
  // Whether the caller is a host function.
  static bool on_driver_thread();

 private:
  bool ready(const Operation& operation) const;
  bool broken(const Operation& operation) const;  // its device is
  // The pending operations that `target` needs, itself included.
  std::vector<OperationPtr> needed(const OperationPtr& target) const;
  // Runs one that is ready, chosen by the order; false if none is.
  bool step(const std::vector<OperationPtr>& among);
  void run(const OperationPtr& operation);
  void begin(Operation& operation);
  void finish(Operation& operation);
  void drive();
  void start_driver();

  Gpu& gpu_;
  std::mt19937 random_;
  std::deque<OperationPtr> pending_;  // in the order of the host's calls
  std::vector<uint32_t> times_;       // by timeline; 0 is the host
  uint64_t next_number_ = 1;
  std::chrono::steady_clock::time_point last_call_;
  bool stopping_ = false;
  std::thread driver_;
};

}  // namespace deltad::emulated_gpu
