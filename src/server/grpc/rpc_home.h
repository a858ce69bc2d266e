// RpcHome: what the calls of one gRPC listener share: their threads and options, who may call,
// whether requests are taken, and how many calls are open. Owned by the server and by each call.
// Any thread.
#pragma once

#include "base/mutex.h"
#include "server/access/access.h"
#include "server/grpc/grpc_server.h"
#include "server/grpc/work_threads.h"
#include "server/observe/observer.h"
#include "server/readiness.h"

namespace deltad {

class RpcHome {
 public:
  // All three outlive it.
  RpcHome(const GrpcOptions& options, const Access& access, Observer& observer,
          const Readiness& readiness)
      : options(options),
        access(access),
        observer(observer),
        readiness(readiness),
        threads(options.threads, options.real_time),
        aside(1, false) {}

  const GrpcOptions options;
  const Access& access;
  Observer& observer;
  const Readiness& readiness;
  WorkThreads threads;
  WorkThreads aside;  // for what takes long

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
};

}  // namespace deltad
