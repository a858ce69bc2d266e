#include "engine/scheduler.h"

#include <algorithm>
#include <set>
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
  const FairWeights& weights = state.options.weights;
  double weight = weights.base;
  if (const Variant* variant = sequence->variant()) {
    const auto found = weights.variants.find(variant->name);
    weight = found == weights.variants.end() ? 1 : found->second;
  }
  state.waiting.join(sequence, weight);
  set_entry(state, sequence);
  state.waiting.insert(sequence, state.now);
}

namespace {

struct RowTimes {         // seconds
  double others = 0;      // a step of all that is not in the background
  double background = 0;  // what the rest adds to it
  double row = 0;         // a row of the dearest background sequence that runs
};

RowTimes row_times(const StepPlan& plan, const SchedulerState& state) {
  const StepCost& cost = state.cost;
  int32_t rows[2][2] = {{0, 0}, {0, 0}};  // of others and of the background: generating, prompts
  double bytes[2] = {0, 0};               // of their deltas
  std::set<const Variant*> variants;
  for (const int background : {0, 1})
    for (const PlannedRows& r : plan.rows) {
      const Sequence* s = r.sequence;
      if ((s->request.priority == kBackgroundPriority) != (background == 1)) continue;
      rows[background][s->generating() ? 0 : 1] += r.rows;
      if (s->variant() != nullptr && variants.insert(s->variant()).second)
        bytes[background] += static_cast<double>(s->variant()->bytes);
    }
  RowTimes out;
  if (rows[0][0] + rows[0][1] > 0) out.others = cost.seconds(rows[0][0], rows[0][1], bytes[0]);
  out.background =
      cost.generating_row() * rows[1][0] + cost.prompt_row() * rows[1][1] + cost.delta(bytes[1]);
  for (const Sequence* s : state.running) {
    if (s->request.priority != kBackgroundPriority) continue;
    const double bytes_of = s->variant() ? static_cast<double>(s->variant()->bytes) : 0;
    out.row = std::max(out.row,
                       std::max(cost.generating_row(), cost.prompt_row()) + cost.delta(bytes_of));
  }
  return out;
}

void settle_background(const StepPlan& plan, SchedulerState& state) {
  const RowTimes times = row_times(plan, state);
  const double share = state.options.background_share * times.others;
  constexpr double kRounding = 1.001;  // a row must come out as affordable
  state.background_credit =
      std::clamp(state.background_credit + share - times.background, 0.0, kRounding * times.row);
}

}  // namespace

StepPlan plan_step(const SchedulerState& state) { return Planner(state).run(); }

void settle(const StepPlan& plan, SchedulerState& state) {
  if (state.waiting.classes().count(kBackgroundPriority) > 0) settle_background(plan, state);
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
  // What was swapped out while it generated comes back as that: no prompt's row shows that its flow
  // went on.
  for (const AdmittedSequence& a : plan.admitted)
    if (a.sequence->generating()) state.waiting.serve(a.sequence->flow, state.now);
  std::sort(served.begin(), served.end(),
            [](const Sequence* a, const Sequence* b) { return a->turn < b->turn; });
  for (Sequence* s : served) s->turn = ++state.turns;
}

}  // namespace deltad
