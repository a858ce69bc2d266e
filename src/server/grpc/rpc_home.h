// RpcHome: what the calls of one gRPC listener share: their threads, options and keys, whether the
// model is there to answer, and how many calls are open. Owned by the server and by each call. Any
// thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "server/grpc/grpc_server.h"
#include "server/grpc/work_threads.h"
#include "server/openai/errors.h"
#include "server/serving.h"

namespace deltad {

class RpcHome {
 public:
  RpcHome(const GrpcOptions& options, ServerMetrics& metrics)
      : options(options),
        metrics(metrics),
        threads(options.threads, options.real_time),
        aside(1, false) {}

  const GrpcOptions options;
  ServerMetrics& metrics;
  WorkThreads threads;
  WorkThreads aside;  // for what takes long

  void set_ready(const Serving& serving) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    serving_ = serving;
  }
  void set_not_ready(std::string reason) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    serving_.reset();
    reason_ = std::move(reason);
  }
  ApiError serving_now(Serving* serving) const EXCLUDES(mutex_);

  void call_began() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    ++calls_;
  }
  void call_ended() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (--calls_ == 0) idle_.notify_all();
  }
  size_t calls() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return calls_;
  }
  // False if the deadline came first.
  bool wait_idle(TimePoint deadline) EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  CondVar idle_;
  size_t calls_ GUARDED_BY(mutex_) = 0;
  std::optional<Serving> serving_ GUARDED_BY(mutex_);
  std::string reason_ GUARDED_BY(mutex_) = "The model is being loaded.";
};

}  // namespace deltad
