// The scheduler: decides what the next step does. A pure function of its state: no clock, no
// device, and it changes nothing. Called by the engine's thread.
//
// Generating sequences come first, one row each; then prompts in their order, as far as the step's
// time allows. Memory for a whole prompt is there before it is admitted; when a generating sequence
// finds no block, the one that is admitted last among the least urgent gives its blocks back.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "engine/sequence.h"
#include "engine/step_cost.h"
#include "engine/step_plan.h"
#include "kv/kv_cache.h"

namespace deltad {

struct SchedulerOptions {
  int32_t max_step_rows = 256;
  int32_t max_running = 256;
  int32_t max_slots = 1;      // distinct variants in a step
  double step_seconds = 0.1;  // bound of a step with generating rows and prompt rows
  // Prompt rows with logits in one chunk: bounds the memory of logits.
  int32_t max_prompt_logit_rows = 64;
};

struct SchedulerState {
  SchedulerOptions options;
  StepCost cost;
  std::vector<Sequence*> running;       // in order of admission
  std::set<Sequence*, Sooner> waiting;  // new ones and preempted ones
  const KvCache* kv = nullptr;
};

StepPlan plan_step(const SchedulerState& state);

// The sequences of a plan's rows have had their turn: they go behind all others, in the order in
// which they stood. `turns` is the last number given.
void end_turns(const StepPlan& plan, uint64_t& turns);

}  // namespace deltad
