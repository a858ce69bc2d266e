// The scheduler: decides what the next step does. A pure function of its state: no clock, no
// device, and it changes nothing. Called by the engine's thread.
//
// Generating sequences come first, one row each; then prompts, as far as the step's time allows.
// Who goes first when not all can: a variant whose prompts have made no step for longer than the
// age bound (one such a step); then the more urgent class; then the flow that was served least for
// its weight (fair_queue.h). A flow stands back by what the bytes of its delta cost, in rows, while
// the step has no row of its variant: so the number of variants in a step is weighed, not limited
// (but for the backend's slots, where those go that have waited longest).
//
// So that one variant's flood cannot take everything from those that come later: tokens are what is
// shared, and places and memory follow them. A sequence that finds none takes those of the flow
// that is furthest ahead, if that one stays ahead (make_room; each sequence does so once in its
// life, so there are no more places taken than requests). And generating rows of a flow above its
// share leave room for prompts of one below (fair_share.h), those of flows without credit for
// prompts of flows with credit.
//
// Rows of background requests (kBackgroundPriority) come after all others: as many as make the step
// longer by their share of its time, or one in some steps where even one takes more, so that it is
// the share over all; in a step of their own as many as the time bound allows; one at least after
// the age bound. They take no place, slot or memory from others.
//
// Memory for a whole prompt is there before it is admitted; when a generating sequence finds no
// block, one of the least urgent class gives its blocks back: of the flow that is furthest ahead,
// the one that is admitted last. What is preempted finds its blocks again, as long as nobody needed
// them (PrefixIndex).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/fair_queue.h"
#include "engine/sequence.h"
#include "engine/step_cost.h"
#include "engine/step_plan.h"
#include "kv/kv_cache.h"

namespace deltad {

struct SchedulerOptions {
  int32_t max_step_rows = 256;
  int32_t max_running = 256;
  int32_t max_slots = 1;      // distinct variants that a step can hold
  double step_seconds = 0.1;  // bound of a step with generating rows and prompt rows
  // Prompt rows with logits in one chunk: bounds the memory of logits.
  int32_t max_prompt_logit_rows = 64;
  double age_seconds = 10;  // whose prompts stand still for longer goes first
  size_t base_bytes = 0;    // of the base's weights; 0 if unknown
  // How far a flow that comes back is ahead of those that always want more, in tokens per weight:
  // some requests' worth, so that one that stays below its share waits for nobody above his.
  double burst_tokens = 4096;
  double background_share = 0.05;  // a step may take so much longer for background rows
  FairWeights weights;
};

struct SchedulerState {
  SchedulerOptions options;
  StepCost cost;
  std::vector<Sequence*> running;  // in order of admission; joined to waiting
  FairQueue waiting;               // new ones and preempted ones
  const KvCache* kv = nullptr;
  TimePoint now{};
  uint64_t turns = 0;  // the last number given
  // Seconds that background rows have left of their share of the last steps: those of a row at
  // most.
  double background_credit = 0;
};

// A new sequence takes its place in the queue.
void enqueue(SchedulerState& state, Sequence* sequence);

StepPlan plan_step(const SchedulerState& state);

// After what the plan says of memory is done, before its rows are computed: the sequences of its
// rows have had their turn and go behind all others, in the order in which they stood; their flows
// pay for the tokens.
void settle(const StepPlan& plan, SchedulerState& state);

}  // namespace deltad
