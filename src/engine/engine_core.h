// EngineCore: the engine without its thread: takes requests, runs steps, delivers events. Every
// call comes from one thread (threaded_engine.cc; a test with a fake clock). A step is a
// transaction: plan → reserve (engine_reserve.cc) → execute → stage → commit (engine_step.cc);
// until commit nothing of a sequence's tokens changes, and a failure ends only the requests that
// caused it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/model_runner.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "kv/block_pool.h"
#include "kv/kv_cache.h"

namespace deltad {

class EngineCore {
 public:
  // max_slots of the options is the runner's.
  EngineCore(ModelRunner& runner, KvCache kv, SchedulerOptions options, int32_t max_context,
             const Clock& clock);
  ~EngineCore();

  // The request is valid (check_request). Handles rise.
  void accept(RequestHandle handle, Request request);
  void cancel(RequestHandle handle);
  void cancel_all();
  // No request: step() would do nothing.
  bool idle() const { return sequences_.empty(); }
  void step();

  void set_weights(const FairWeights& weights) {
    state_.options.weights = weights;
    ahead_.reset();
  }

  EngineStats stats() const;
  int failed_steps_in_a_row() const { return failed_in_a_row_; }
  const SchedulerState& state() const { return state_; }
  const KvCache& kv() const { return kv_; }

 private:
  // What one sequence's rows gave, before it is made true.
  struct Staged {
    Status status;
    bool sampled = false;
    Sampled token;
    std::vector<Scored> prompt;  // of prompt[first_scored…]
  };
  // One row of logits and what is to be done with it.
  struct LogitTask {
    size_t planned;       // index into the plan's rows, and of Staged
    int32_t scored = -1;  // index into Staged::prompt; −1: sample
    int32_t token = -1;   // to be scored
  };

  void expire();
  // Afterwards the plan has rows of those alone whose blocks are there.
  void reserve(StepPlan& plan);
  static void leave_out(StepPlan& plan, Sequence* sequence);
  void grow(Sequence* sequence, int32_t blocks);
  void preempt(const std::vector<Sequence*>& preempted);
  // Those whose blocks did not come back from the host.
  std::vector<Sequence*> admit(const std::vector<AdmittedSequence>& admitted);
  // Blocks that hold the sequence's tokens, to be copied to the host; empty: there is no room.
  std::vector<KvBlockCopy> to_host(Sequence* s);
  void free_host_blocks(Sequence* s);
  // The plan of this step: the one made ahead, or a new one.
  StepPlan next_plan();
  // Plans the next step while this one's rows are computed, as if their sequences went on.
  void plan_ahead(const StepPlan& plan, const std::vector<Staged>& staged);
  // A sequence ends: the plan made ahead goes without it, or is given up.
  void leave_ahead(const Sequence* sequence);
  // Runs the model and samples: on the device, if it can and all rows of logits are so that it may.
  Status execute(const StepPlan& plan, std::vector<Staged>& staged);
  Batch batch_of(const StepPlan& plan, std::vector<LogitTask>& tasks, std::vector<Staged>& staged);
  SampleInput sample_input(const StepPlan& plan, const LogitTask& task) const;
  bool device_samples(const StepPlan& plan, const std::vector<LogitTask>& tasks) const;
  Status sample_on_device(const StepPlan& plan, const Batch& batch,
                          std::span<const VariantWeights* const> slots,
                          const std::vector<LogitTask>& tasks, std::vector<Staged>& staged);
  void stage(const StepPlan& plan, const Logits& logits, const std::vector<LogitTask>& tasks,
             std::vector<Staged>& staged);
  void commit(const StepPlan& plan, std::vector<Staged>& staged);
  void commit_sequence(const PlannedRows& rows, Staged& staged);

  // The one place where a request ends: blocks, variant, then the event.
  void finish(Sequence* sequence, FinishReason reason, Status status = {}, int32_t stop_token = -1);
  void free_blocks(Sequence* sequence);
  void leave_running(Sequence* sequence);
  static void deliver(const Request& request, const TokenEvent& event);

  ModelRunner& runner_;
  KvCache kv_;
  BlockPool host_;  // of the runner's KvSwap
  const int32_t max_context_;
  const Clock& clock_;
  std::unordered_map<RequestHandle, std::unique_ptr<Sequence>> sequences_;
  std::set<std::pair<TimePoint, RequestHandle>> deadlines_;  // of these, those that have one
  SchedulerState state_;
  std::optional<StepPlan> ahead_;  // given up where anything changes but that sequences go on
  uint64_t step_number_ = 0, admissions_ = 0;
  int failed_in_a_row_ = 0;
  EngineStats stats_;
};

}  // namespace deltad
