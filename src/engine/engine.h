// Engine: continuous batching over one base and any mix of its variants. One thread owns all
// scheduling state and runs the steps (it is kernel worker 0); submit and cancel may be called from
// any thread and never wait for a step. A step is a transaction: plan → reserve → execute → stage →
// commit; what fails before commit is rolled back and fails only the requests that caused it. No
// request: the thread sleeps.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/request.h"
#include "model/config.h"
#include "model/weight_table.h"

namespace deltad {

// Shares of the tokens when there is not enough for all; > 0. Variants by name, others have 1.
struct FairWeights {
  double base = 1;
  std::map<std::string, double> variants;
  bool operator==(const FairWeights&) const = default;
};

constexpr int64_t kAutomaticBytes = -1;

struct EngineOptions {
  int64_t kv_bytes = 0;  // 0: from the machine's memory
  // Of the host, for preempted sequences of a model on a GPU; kAutomaticBytes: from both memories.
  int64_t kv_host_bytes = kAutomaticBytes;
  int32_t block_tokens = 16;
  int32_t max_context = 0;      // 0: the model's, at most what the KV cache holds
  int32_t max_step_rows = 256;  // rows (tokens) of one step
  int32_t max_running = 256;    // sequences that run at once
  int32_t max_waiting = 4096;   // queue bound: beyond it submit says kResourceExhausted
  double step_seconds =
      0.1;  // prompt rows join a step that has generating rows only as far as this bound is kept
  bool prefix_cache = true;
  double age_seconds = 10;         // a variant whose prompts stand still for longer goes first
  double background_share = 0.05;  // of a step's time, for background requests on top of it
  // Tokens by which a variant that comes back goes before those that always want more.
  double burst_tokens = 4096;
  FairWeights weights;
  double stall_seconds = 60;  // a step that takes longer hangs: the engine is not healthy
};

struct StepGroup {      // rows of one step that go through the same weights
  std::string variant;  // its name; "": the base
  int32_t rows = 0;
};

struct BaseModel;

struct EngineStats {  // a snapshot
  int64_t running = 0, waiting = 0;
  int64_t kv_blocks = 0, kv_blocks_used = 0, kv_blocks_cached = 0, block_tokens = 0;
  uint64_t steps = 0, steps_planned_ahead = 0, prompt_tokens = 0, generated_tokens = 0,
           cached_tokens = 0, preemptions = 0;
  // Of these, how many went to the host, and how many came back from there; its blocks.
  uint64_t swapped_out = 0, swapped_in = 0;
  int64_t kv_host_blocks = 0, kv_host_blocks_used = 0;
  uint64_t prefix_queries = 0, prefix_hits = 0;  // in tokens
  size_t workspace_bytes = 0;                    // of a step: activations, logits, rotations
  double last_step_seconds = 0;
  int32_t last_step_rows = 0;
  std::vector<StepGroup> last_step;  // the base first
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> make(const ModelConfig& config, const WeightTable& table,
                                              Backend& backend, const EngineOptions& options);
  // On the base's backend, whatever it is; base outlives the engine.
  static Result<std::unique_ptr<Engine>> make(const BaseModel& base, const EngineOptions& options);
  virtual ~Engine() = default;  // = shutdown at once

  // kInvalidArgument (prompt too long …), kResourceExhausted (queue full), kUnavailable (shutting
  // down). After an OK every request gets exactly one kFinished event.
  virtual Result<RequestHandle> submit(Request request) = 0;
  // What submit refuses whatever the variant is (it may not be loaded yet): an empty prompt, one
  // too long, parameters out of range. submit calls it too, and also checks the token ids.
  virtual Status check(const Request& request) const = 0;
  // Unknown handles are ignored; takes effect between two steps.
  virtual void cancel(RequestHandle handle) = 0;
  // Refuses new requests from now on; returns when the running ones are done, or at the deadline,
  // when the rest is cancelled.
  virtual void shutdown(TimePoint deadline) = 0;
  virtual EngineStats stats() const = 0;
  virtual int32_t max_context() const = 0;
  virtual bool healthy() const = 0;
  // Not ok: the device has failed, for good, and why; the engine is not healthy then.
  virtual Status device_health() const { return {}; }
  // How long the step that runs has taken so far; 0: none runs.
  virtual Duration step_age() const { return Duration(0); }
  // For requests from now on, and for those of the same variant that run.
  virtual void set_weights(const FairWeights&) {}
};

}  // namespace deltad
