// PoolService: the adapter pool as a part of the server: a thread that carries out its operations,
// one after the other, while serving goes on; what each is doing and what came of it; and the names
// under which the pool's adapters are served. The heavy arithmetic runs on a thread that takes only
// the time that others leave (QuietThread); everything that others might wait for is done by the
// pool's thread. Owned by the daemon. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "merge/adapter_pool.h"
#include "router/router.h"
#include "server/pool/quiet_thread.h"
#include "server/pool/router_scorer.h"

namespace deltad {

// A member is served under its own name too, made from its digest.
std::string pool_member_name(const std::string& digest);

enum class PoolOperationKind { kAdd, kRemove, kBudget };
enum class PoolOperationState { kQueued, kRunning, kDone, kFailed, kCancelled };
const char* pool_operation_kind_name(PoolOperationKind kind);
const char* pool_operation_state_name(PoolOperationState state);

struct PoolOperation {
  uint64_t id = 0;
  PoolOperationKind kind = PoolOperationKind::kAdd;
  std::string name;             // of the adapter
  std::string path, questions;  // of kAdd
  int64_t budget = 0;           // of kBudget
  PoolOperationState state = PoolOperationState::kQueued;
  std::string doing;    // while it runs
  Status status;        // once it has ended
  PoolReport report;    // as far as it has come
  int64_t created = 0;  // unix seconds
  TimePoint started{}, ended{};
};

constexpr size_t kPoolOperationKinds = 3, kPoolResults = 3;  // done, failed, cancelled
struct PoolFigures {                                         // for /metrics
  int64_t budget = 0, bytes = 0, adapters = 0, members = 0, waiting = 0;
  std::array<std::array<uint64_t, kPoolResults>, kPoolOperationKinds> operations{};
};

struct PoolServiceOptions {
  std::string folder;  // "": no pool
  PoolOptions pool;
  ScoringOptions scoring;
};

class PoolService {
 public:
  // Serves what the folder's state says. table and router outlive it.
  static Result<std::unique_ptr<PoolService>> start(const PoolServiceOptions& options,
                                                    const WeightTable& table,
                                                    const std::string& base_digest, Router& router);
  // The same with a pool that make makes, which is to use this scorer and publisher.
  using MakePool = std::function<Result<std::unique_ptr<AdapterPool>>(PoolScorer&, PoolPublisher&)>;
  static Result<std::unique_ptr<PoolService>> start(const ScoringOptions& scoring,
                                                    const MakePool& make, Router& router);
  ~PoolService();  // stop()

  // What is plainly wrong is refused at once: kInvalidArgument, kConflict (the name is taken),
  // kNotFound, kResourceExhausted (too many operations wait), kUnavailable. Else the operation,
  // which has its turn when those before it have ended.
  Result<PoolOperation> add(const std::string& name, const std::string& path,
                            const std::string& questions) EXCLUDES(mutex_);
  Result<PoolOperation> remove(const std::string& name) EXCLUDES(mutex_);
  Result<PoolOperation> set_budget(int64_t bytes) EXCLUDES(mutex_);
  // kNotFound; kConflict if it has ended. One that runs stops at its next question.
  Result<PoolOperation> cancel(uint64_t id) EXCLUDES(mutex_);

  PoolView view() const EXCLUDES(mutex_);
  // Those that wait and run and the last that have ended, newest first.
  std::vector<PoolOperation> operations() const EXCLUDES(mutex_);
  Result<PoolOperation> operation(uint64_t id) const EXCLUDES(mutex_);
  PoolFigures figures() const EXCLUDES(mutex_);

  // Cancels all operations, the pool as it was before the one that runs; returns when that has
  // stopped.
  void stop() EXCLUDES(mutex_);

 private:
  class Links;  // the pool's way to the router, over the pool's thread

  PoolService(Router& router, const ScoringOptions& scoring);
  Result<PoolOperation> enqueue(PoolOperation operation) REQUIRES(mutex_);
  bool name_comes(const std::string& name) const REQUIRES(mutex_);
  PoolOperation* find(uint64_t id) REQUIRES(mutex_);
  void loop() EXCLUDES(mutex_);
  void perform(const PoolOperation& operation) EXCLUDES(mutex_);
  Status carry_out(const PoolOperation& operation, PoolReport* report);
  void end(PoolOperation* operation, Status status, const PoolReport* report) REQUIRES(mutex_);

  Router& router_;
  RouterScorer scorer_;
  QuietThread quiet_;
  std::unique_ptr<Links> links_;
  std::unique_ptr<DurableFolder> folder_;  // of the pool; null: its owner is another
  std::unique_ptr<AdapterPool> pool_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<PoolOperation> operations_ GUARDED_BY(mutex_);  // oldest first
  uint64_t last_id_ GUARDED_BY(mutex_) = 0;
  PoolView view_ GUARDED_BY(mutex_);
  std::array<std::array<uint64_t, kPoolResults>, kPoolOperationKinds> results_ GUARDED_BY(mutex_){};
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace deltad
