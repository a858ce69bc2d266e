// ThreadedEngine: EngineCore with its thread. submit and cancel put messages into an inbox under a
// mutex; the thread takes them between two steps and sleeps while there is nothing to do.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/engine_core.h"

namespace deltad {

struct EngineLimits {
  int64_t base_vocab = 0;
  int32_t max_context = 0;
  int32_t max_waiting = 0;
  Duration stall = std::chrono::seconds(60);  // a step that takes longer hangs
};

class ThreadedEngine final : public Engine {
 public:
  ThreadedEngine(std::unique_ptr<ModelRunner> runner, KvCache kv, const SchedulerOptions& options,
                 const EngineLimits& limits, const Clock& clock = Clock::real());
  ~ThreadedEngine() override;

  Result<RequestHandle> submit(Request request) override EXCLUDES(mutex_);
  Status check(const Request& request) const override;
  void cancel(RequestHandle handle) override EXCLUDES(mutex_);
  void shutdown(TimePoint deadline) override EXCLUDES(mutex_);
  EngineStats stats() const override EXCLUDES(mutex_);
  int32_t max_context() const override { return limits_.max_context; }
  // False after several failed steps in a row, until one succeeds, while a step hangs, and once the
  // device has failed.
  bool healthy() const override;
  Status device_health() const override { return runner_->health(); }
  Duration step_age() const override;
  void set_weights(const FairWeights& weights) override EXCLUDES(mutex_);

 private:
  struct Message {
    RequestHandle handle;
    std::optional<Request> request;  // none: cancel
  };
  void run() EXCLUDES(mutex_);
  void publish(const EngineStats& stats) EXCLUDES(mutex_);

  const std::unique_ptr<ModelRunner> runner_;
  const EngineLimits limits_;
  const int32_t max_running_;
  const Clock& clock_;

  mutable Mutex mutex_;
  CondVar wake_;  // the engine's thread: messages, or stop
  CondVar idle_;  // shutdown: no request is left
  std::vector<Message> inbox_ GUARDED_BY(mutex_);
  std::optional<FairWeights> weights_ GUARDED_BY(mutex_);  // for the core
  int64_t new_requests_ GUARDED_BY(mutex_) = 0;            // submitted, not yet in stats_
  EngineStats stats_ GUARDED_BY(mutex_);
  RequestHandle last_handle_ GUARDED_BY(mutex_) = 0;
  bool draining_ GUARDED_BY(mutex_) = false;
  bool cancel_all_ GUARDED_BY(mutex_) = false;
  bool stop_ GUARDED_BY(mutex_) = false;
  bool busy_ GUARDED_BY(mutex_) = false;  // the core holds requests

  std::atomic<int> failed_steps_{0};
  std::atomic<Duration::rep> step_began_{0};  // of the step that runs; 0: none

  EngineCore core_;  // the engine's thread only, once it runs
  std::thread thread_;
};

}  // namespace deltad
