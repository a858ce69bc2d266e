#include "engine/threaded_engine.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/check_request.h"

namespace deltad {
namespace {

constexpr int kUnhealthyAfter = 3;  // failed steps in a row

}  // namespace

ThreadedEngine::ThreadedEngine(std::unique_ptr<ModelRunner> runner, KvCache kv,
                               const SchedulerOptions& options, const EngineLimits& limits,
                               const Clock& clock)
    : runner_(std::move(runner)),
      limits_(limits),
      max_running_(options.max_running),
      clock_(clock),
      core_(*runner_, std::move(kv), options, limits.max_context, clock) {
  stats_ = core_.stats();
  thread_ = std::thread([this] { run(); });
}

ThreadedEngine::~ThreadedEngine() {
  {
    MutexLock lock(mutex_);
    draining_ = cancel_all_ = stop_ = true;
    wake_.notify_one();
  }
  thread_.join();
}

Result<RequestHandle> ThreadedEngine::submit(Request request) {
  RETURN_IF_ERROR(check(request));
  RETURN_IF_ERROR(check_tokens(request, limits_.base_vocab));
  MutexLock lock(mutex_);
  if (draining_) return unavailable("the server is shutting down");
  const int64_t waiting = stats_.waiting + new_requests_;
  const int64_t bound = limits_.max_waiting + std::max<int64_t>(max_running_ - stats_.running, 0);
  if (waiting >= bound)
    return resource_exhausted(
        fmt::format("{} requests are waiting already, which is the limit", waiting));
  const RequestHandle handle = ++last_handle_;
  ++new_requests_;
  inbox_.push_back({handle, std::move(request)});
  wake_.notify_one();
  return handle;
}

Status ThreadedEngine::check(const Request& request) const {
  return check_request(request, limits_.max_context);
}

void ThreadedEngine::cancel(RequestHandle handle) {
  MutexLock lock(mutex_);
  inbox_.push_back({handle, std::nullopt});
  wake_.notify_one();
}

void ThreadedEngine::shutdown(TimePoint deadline) {
  MutexLock lock(mutex_);
  draining_ = true;
  const auto left = [this]() REQUIRES(mutex_) { return busy_ || !inbox_.empty(); };
  while (left()) {
    if (!cancel_all_ && clock_.now() >= deadline) {
      cancel_all_ = true;
      wake_.notify_one();
    }
    if (cancel_all_ || deadline == TimePoint::max())
      idle_.wait(mutex_);
    else
      idle_.wait_until(mutex_, deadline);
  }
}

EngineStats ThreadedEngine::stats() const {
  MutexLock lock(mutex_);
  EngineStats out = stats_;
  out.waiting += new_requests_;
  return out;
}

bool ThreadedEngine::healthy() const {
  if (failed_steps_.load(std::memory_order_relaxed) >= kUnhealthyAfter) return false;
  if (!device_health().ok()) return false;
  return step_age() < limits_.stall;
}

Duration ThreadedEngine::step_age() const {
  const auto began = step_began_.load(std::memory_order_relaxed);
  return began == 0 ? Duration(0) : clock_.now().time_since_epoch() - Duration(began);
}

void ThreadedEngine::set_weights(const FairWeights& weights) {
  MutexLock lock(mutex_);
  weights_ = weights;
}

void ThreadedEngine::run() {
  std::vector<Message> messages;
  while (true) {
    bool cancel_all = false;
    {
      MutexLock lock(mutex_);
      busy_ = !core_.idle();
      while (!busy_ && inbox_.empty()) {
        idle_.notify_all();
        if (stop_) return;
        wake_.wait(mutex_);
      }
      busy_ = true;
      messages.swap(inbox_);
      cancel_all = cancel_all_;
      if (weights_) core_.set_weights(*weights_);
      weights_.reset();
    }
    for (Message& message : messages) {
      if (message.request)
        core_.accept(message.handle, std::move(*message.request));
      else
        core_.cancel(message.handle);
    }
    messages.clear();
    if (cancel_all) core_.cancel_all();
    step_began_.store(clock_.now().time_since_epoch().count(), std::memory_order_relaxed);
    core_.step();
    step_began_.store(0, std::memory_order_relaxed);
    failed_steps_.store(core_.failed_steps_in_a_row(), std::memory_order_relaxed);
    publish(core_.stats());
  }
}

void ThreadedEngine::publish(const EngineStats& stats) {
  MutexLock lock(mutex_);
  stats_ = stats;
  new_requests_ = 0;
  for (const Message& message : inbox_)
    if (message.request) ++new_requests_;
}

}  // namespace deltad
