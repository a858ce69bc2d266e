// AdapterPool: a bounded pool of LoRA adapters (K-Merge, arXiv 2510.13537). Within a budget of
// bytes it keeps every adapter that was added: as it is while there is room, then in fewer bits or
// at a lower rank, and at last merged with the one most like it. Each such step is kept only if
// every adapter it touches still answers its own questions (PoolScorer) nearly as well as alone.
//
// The pool has no threads. open, add, remove and set_budget are called by one thread at a time;
// view() by any. An operation is one change of the durable state: after a crash at any point the
// pool is as before it or as after it. State: merge/pool_state. Decisions: merge/pool_plan.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "io/durable_folder.h"
#include "merge/pool_report.h"
#include "model/weight_table.h"
#include "text/questions.h"

namespace deltad {

enum class PoolPolicy {
  kShrinkFirst,  // room is made without loss of quality before anything is merged
  kKmerge,       // as published: a full pool merges at once, in 16 bits
};
Result<PoolPolicy> parse_pool_policy(const std::string& text);  // "shrink-first", "kmerge"
const char* pool_policy_name(PoolPolicy policy);

enum class PoolMergeBy {
  kBest,     // both, and the one whose worst task keeps more
  kAverage,  // the running average in the space of BA
  kOpcm,
};
Result<PoolMergeBy> parse_pool_merge_by(const std::string& text);  // "best", "average", "opcm"
const char* pool_merge_by_name(PoolMergeBy merge_by);

struct PoolOptions {
  int64_t budget = 0;  // bytes of member files
  PoolPolicy policy = PoolPolicy::kShrinkFirst;
  PoolMergeBy merge_by = PoolMergeBy::kBest;
  // The gate: each adapter keeps at least this share of its own single score. 0 accepts all.
  double keep_share = 0.9;
  // K-Merge++: with free room too, an adapter is stored on its own only if its similarity to every
  // member is below this.
  std::optional<double> store_below;
  // A rank is cut where no more than this share of ‖BA‖² goes with it.
  double max_dropped_energy = 0.1;
  double opcm_share = 0.5;  // a of DESIGN §11
};

// Scores an adapter file on questions: the share that it answers exactly. Blocks. kCancelled if the
// pool is being closed.
class PoolScorer {
 public:
  virtual ~PoolScorer() = default;
  virtual Result<double> score(const std::string& path, const std::vector<Question>& questions) = 0;
};

// Makes the daemon serve exactly this view, all names at once. Called at open with what was found,
// and by each operation after its state is durable and before files that it no longer names go.
class PoolPublisher {
 public:
  virtual ~PoolPublisher() = default;
  virtual Status publish(const PoolView& view) = 0;
};

// Told before each thing that takes long: what it is ("scoring sql on 24 questions"), and the
// report as far as it has come.
using PoolProgress = std::function<void(const std::string& doing, const PoolReport& so_far)>;

class AdapterPool {
 public:
  // folder, table, scorer and publisher outlive the pool. base_digest: of the running base; a pool
  // that was made for another is refused.
  static Result<std::unique_ptr<AdapterPool>> open(const PoolOptions& options,
                                                   const WeightTable& table,
                                                   const std::string& base_digest,
                                                   DurableFolder& folder, PoolScorer& scorer,
                                                   PoolPublisher& publisher);
  virtual ~AdapterPool() = default;

  // Adds the adapter at adapter_path (any form) under `name`, with questions_path its evaluation
  // set. report (not null) says what was tried, also when the add is refused.
  // kInvalidArgument: a bad name, adapter or evaluation set; kConflict: the name is taken;
  // kResourceExhausted: there is no room that passes the gate. The pool is then as it was.
  virtual Status add(const std::string& name, const std::string& adapter_path,
                     const std::string& questions_path, const PoolProgress& progress,
                     PoolReport* report) = 0;
  // A member that serves other names too stays as it is for them; with its last name it goes.
  virtual Status remove(const std::string& name) = 0;
  // Survives a restart, until the configured budget changes. A smaller one shrinks and merges
  // behind the gate; kResourceExhausted if that is not enough.
  virtual Status set_budget(int64_t bytes, const PoolProgress& progress, PoolReport* report) = 0;

  virtual PoolView view() const = 0;
};

}  // namespace deltad
