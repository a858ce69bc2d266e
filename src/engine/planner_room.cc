// Whose place a waiting sequence may take: so that a flow cannot keep those out that come later.
//
// No thrashing: a sequence takes places once in its life, so there are at most as many takers as
// requests. Each takes one place, or as many as it needs for the blocks of its prompt and one more.
// And it takes them only from a flow that is ahead by half of the credit even when all that the
// taker's flow has begun and begins is paid for: before that flow can take a place back, it has to
// be behind by as much, so a credit's worth of tokens lies between.
#include <algorithm>
#include <utility>

#include "engine/planner.h"

namespace deltad {
namespace {

constexpr int32_t kMostHeads = 8;  // for how many flows places are looked for in one step

}  // namespace

// Grants a place and memory to the first sequence of each of the first flows in line, in the most
// urgent class that waits, and of the flow that is overdue: what is free, or else what it may take
// from flows that are further ahead.
void Planner::make_room() {
  const auto& by_age = state_.waiting.by_age();
  if (by_age.empty()) return;
  const Flow* oldest = oldest_waiting();
  if (oldest != nullptr && overdue(oldest->since))
    grant(*oldest->waiting.begin());
  else
    oldest = nullptr;
  const FlowClass* in = nullptr;
  for (const auto& [priority, candidate] : state_.waiting.classes()) {
    if (candidate.waiting.empty()) continue;
    in = &candidate;
    break;
  }
  int32_t heads = 0;
  for (auto flow = in->waiting.begin(); flow != in->waiting.end() && heads < kMostHeads; ++flow) {
    if (*flow == oldest) continue;
    if (!open_ && nothing_to_take(**flow)) break;
    ++heads;
    grant(*(*flow)->waiting.begin());
  }
  ledger_.give(std::exchange(passed_over_, 0));
}

void Planner::grant(Sequence* head) {
  const int32_t needed = needed_blocks(head);
  if (places_free() && ledger_.available() >= needed + growing_) {
    ledger_.take(needed);
    granted_.emplace(head, Grant{needed, false});
  } else if (!take_places(head)) {
    // Strictly in order: what is free stays so for this one, so that a long prompt that waits for
    // memory is not overtaken for ever. Those behind it need places that they take from others.
    open_ = false;
    const int32_t kept = std::min(needed, ledger_.available());
    ledger_.take(kept);
    passed_over_ += kept;
    return;
  }
  work_of(head->flow);  // among those whose prompts are planned
}

// What admitting it takes from what is available.
int32_t Planner::needed_blocks(const Sequence* s) {
  const std::vector<int32_t> cached = cached_blocks(s);
  const int32_t before = ledger_.available();
  ledger_.retain(cached);
  const int32_t held = before - ledger_.available();
  ledger_.release(cached);
  return held + wanted_blocks(s, cached);
}

// Takes places and memory for it, if it gets enough. A sequence does so once in its life, and only
// from flows that stay ahead of its own when its prompt is paid for, by half of the credit at
// least: so places do not go back and forth.
bool Planner::take_places(Sequence* head) {
  if (head->took_place) return false;
  const double counter = counter_with(head);
  std::vector<std::pair<Work*, Sequence*>> taken;
  const auto give_back = [&] {
    for (auto at = taken.rbegin(); at != taken.rend(); ++at) {
      ledger_.retain(at->second->blocks);
      at->first->running.push_back(at->second);
    }
    return false;
  };
  int32_t needed = 0;
  do {
    Work* from = furthest_ahead();
    if (from == nullptr || from->flow == head->flow) return give_back();
    if (from->flow->priority < head->flow->priority) return give_back();
    if (from->flow->priority == head->flow->priority && from->flow->counter < counter)
      return give_back();
    Sequence* victim = from->running.back();  // what was begun last
    from->running.pop_back();
    ledger_.release(victim->blocks);
    taken.push_back({from, victim});
    needed = needed_blocks(head);
  } while (ledger_.available() < needed + growing_);
  ledger_.take(needed);
  granted_.emplace(head, Grant{needed, true});
  for (const auto& [work, victim] : taken) note_preempted(victim);
  return true;
}

// What the counter of a flow must be for it to take a place from that one.
double Planner::counter_with(const Sequence* head) const {
  int64_t unpaid = 0;
  const auto own = work_index_.find(head->flow);
  if (own != work_index_.end())
    for (const Sequence* s : works_[own->second].running) unpaid += s->size() - s->charged;
  const double credit = state_.waiting.credit(), weight = head->flow->weight;
  return head->flow->key() + static_cast<double>(unpaid) / weight +
         std::clamp((head->size() - head->charged) / weight, credit / 2, credit);
}

// For a flow, and so for those behind it in line.
bool Planner::nothing_to_take(const Flow& flow) {
  const Work* from = furthest_ahead();
  return from == nullptr || from->flow->priority < flow.priority ||
         (from->flow->priority == flow.priority &&
          from->flow->counter < flow.key() + state_.waiting.credit() / 2);
}

Planner::Work* Planner::furthest_ahead() {
  Work* best = nullptr;
  for (Work& work : works_) {
    if (work.running.empty()) continue;
    if (best == nullptr || std::pair(work.flow->priority, work.flow->counter) >
                               std::pair(best->flow->priority, best->flow->counter))
      best = &work;
  }
  return best;
}

}  // namespace deltad
