// What is not urgent at all: rows of background requests, as far as a step hardly takes longer.
#include <algorithm>

#include "engine/planner.h"

namespace deltad {

// Of those that wait and are not in the background, whose prompts have stood still longest.
const Flow* Planner::oldest_waiting() const {
  for (const Flow* flow : state_.waiting.by_age())
    if (flow->priority != kBackgroundPriority) return flow;
  return nullptr;
}

// Those that generate, in the order in which they get rows.
std::vector<Sequence*> Planner::background_in_order(bool* stand_still) {
  std::vector<Sequence*> ready;
  int32_t growing = 0;
  for (Work& work : works_) {
    if (!work.background()) continue;
    for (Sequence* s : work.running) {
      if (is_preempted(s)) continue;
      *stand_still = *stand_still && overdue(s->served);
      if (!s->generating()) continue;
      ready.push_back(s);
      growing += grows(s);
    }
    if (!work.running.empty() && !has_slot(work.running.front()) && slot_left())
      chosen_.insert(work.running.front()->variant());
  }
  const auto by_turn = [](const Sequence* a, const Sequence* b) { return a->turn < b->turn; };
  // As in plan_generating: a victim has no rows yet.
  const bool lacks = ledger_.available() < growing;
  std::sort(ready.begin(), ready.end(), [&](const Sequence* a, const Sequence* b) {
    return lacks ? keeps_memory_before(a, b) : by_turn(a, b);
  });
  return ready;
}

// A block for it, if it needs one: a free one, or of another that is in the background too.
bool Planner::background_block(Sequence* s) {
  while (grows(s) && !ledger_.take(1)) {
    Sequence* victim = nullptr;
    for (const Work& work : works_) {
      if (!work.background()) continue;
      for (Sequence* v : work.running)
        if (!is_preempted(v) && (victim == nullptr || keeps_memory_before(victim, v))) victim = v;
    }
    ledger_.release(victim->blocks);
    note_preempted(victim);
    open_ = false;
    if (victim == s) return false;
  }
  return true;
}

void Planner::plan_background() {
  const auto at = state_.waiting.classes().find(kBackgroundPriority);
  if (at == state_.waiting.classes().end()) return;
  background_ = true;
  const StepCost& cost = state_.cost;
  const int32_t before = plan_.generating_rows + plan_.prompt_rows;
  longest_ = options_.step_seconds;
  if (before > 0) {
    const double others = cost.seconds(plan_.generating_rows, plan_.prompt_rows, delta_bytes_);
    longest_ = others + std::max(options_.background_share * others, state_.background_credit);
  }
  bool stand_still = true;  // all of them, for the age bound
  const std::vector<Sequence*> ready = background_in_order(&stand_still);
  least_background_ = before + (before == 0 || stand_still ? 1 : 0);
  for (Sequence* s : ready) {
    const int32_t rows = plan_.generating_rows + plan_.prompt_rows;
    if (rows >= options_.max_step_rows) return;
    if (is_preempted(s) || !has_slot(s)) continue;
    if (rows >= least_background_ && cost.seconds(plan_.generating_rows + 1, plan_.prompt_rows,
                                                  bytes_with(s->variant())) > longest_)
      break;
    if (!background_block(s)) break;
    if (grows(s)) plan_.grown.push_back(s);
    add_rows(s, s->computed, 1);
    ++plan_.generating_rows;
  }
  for (Work& work : works_)
    std::erase_if(work.prompts, [this](Sequence* s) { return is_preempted(s); });
  plan_class(kBackgroundPriority, at->second);
}

int32_t Planner::background_rows_left(const Variant* variant) const {
  const int64_t rows = plan_.generating_rows + plan_.prompt_rows;
  const int64_t in_time =
      state_.cost.prompt_rows_within(longest_, plan_.generating_rows, bytes_with(variant)) -
      plan_.prompt_rows;
  return static_cast<int32_t>(
      std::min(options_.max_step_rows - rows, std::max(in_time, least_background_ - rows)));
}

}  // namespace deltad
