#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "engine/planner.h"

namespace deltad {
namespace {

void set_entry(SchedulerState& state, const Sequence* s) {
  if (s->variant() == nullptr) return;
  // Bounded, so that a measurement gone wrong keeps nobody away for long.
  const double rows = state.cost.rows_for(static_cast<double>(s->variant()->bytes));
  state.waiting.set_entry(s->flow,
                          std::min(rows, static_cast<double>(state.options.max_step_rows)));
}

}  // namespace

void enqueue(SchedulerState& state, Sequence* sequence) {
  const SchedulerOptions& options = state.options;
  double weight = options.base_weight;
  if (const Variant* variant = sequence->variant()) {
    const auto found = options.variant_weights.find(variant->name);
    weight = found == options.variant_weights.end() ? 1 : found->second;
  }
  state.waiting.join(sequence, weight);
  set_entry(state, sequence);
  state.waiting.insert(sequence, state.now);
}

StepPlan plan_step(const SchedulerState& state) { return Planner(state).run(); }

void settle(const StepPlan& plan, SchedulerState& state) {
  for (Sequence* s : state.running) s->left_rows = true;
  for (const PlannedRows& r : plan.rows) r.sequence->left_rows = !r.last();
  // Before this step is paid for: virtual time is that of what begins (as the start tags of
  // start-time fair queueing), so a newcomer goes before the next of those that were served.
  state.waiting.advance(state.running);
  std::vector<Sequence*> served;
  served.reserve(plan.rows.size());
  Flow* paying = nullptr;  // most rows of one flow stand together
  int32_t tokens = 0;
  const auto pay = [&] {
    if (paying != nullptr) state.waiting.charge(paying, std::exchange(tokens, 0));
  };
  for (const PlannedRows& r : plan.rows) {
    Sequence* s = r.sequence;
    if (s->flow != paying) {
      pay();
      paying = s->flow;
    }
    served.push_back(s);
    s->served = state.now;
    const int32_t end = r.first_position + r.rows;
    if (!s->generating()) {
      set_entry(state, s);
      state.waiting.serve(s->flow, state.now);
    }
    // What is computed again after a preemption is paid for already.
    tokens += std::max(end - std::max(s->charged, r.first_position), 0);
    s->charged = std::max(s->charged, end);
  }
  pay();
  std::sort(served.begin(), served.end(),
            [](const Sequence* a, const Sequence* b) { return a->turn < b->turn; });
  for (Sequence* s : served) s->turn = ++state.turns;
}

}  // namespace deltad
