// Whose place a waiting sequence may take: so that a flow cannot keep those out that come later.
#include <algorithm>

#include "engine/planner.h"

namespace deltad {
namespace {

constexpr int32_t kMostHeads = 8;  // for how many flows places are looked for in one step

}  // namespace

// The first sequence of each of the first flows in line, if it finds no place or no memory, takes
// those of flows with more than their share. What the heads need stays reserved.
void Planner::make_room() {
  int32_t heads = 0, held = 0;
  bool found = true;
  for (const auto& [priority, in] : state_.waiting.classes()) {
    for (auto flow = in.waiting.begin(); flow != in.waiting.end() && found; ++flow) {
      const Sequence* head = *(*flow)->waiting.begin();
      // Strictly in order: behind one that finds no place nobody is admitted.
      found = heads < kMostHeads && (has_place(head, count_ + heads) || take_places(head, heads));
      if (!found) break;
      ++heads;
      const int32_t blocks = std::min(kv_.blocks_for(head->size()), ledger_.available());
      ledger_.take(blocks);
      held += blocks;
    }
    // One whose place was taken is more urgent than all that follow.
    if (!found || !plan_.preempted.empty()) break;
  }
  if (plan_.preempted.empty())
    ledger_.give(held);
  else
    reserved_ = held;
}

bool Planner::has_place(const Sequence* s, int32_t running) {
  if (running >= options_.max_running) return false;
  const std::vector<int32_t> cached = cached_blocks(s);
  ledger_.retain(cached);
  const bool fits = ledger_.available() >= wanted_blocks(s, cached);
  ledger_.release(cached);
  return fits;
}

bool Planner::take_places(const Sequence* head, int32_t promised) {
  const auto own = work_index_.find(head->flow);
  const size_t own_running = own == work_index_.end() ? 0 : works_[own->second].running.size();
  std::vector<std::pair<Work*, Sequence*>> taken;
  while (!has_place(head, count_ - static_cast<int32_t>(taken.size()) + promised)) {
    Work* from = most_above(*head->flow, own_running);
    if (from == nullptr) {  // it would not be enough: everything stays as it is
      for (auto at = taken.rbegin(); at != taken.rend(); ++at) {
        ledger_.retain(at->second->blocks);
        at->first->running.push_back(at->second);
      }
      return false;
    }
    Sequence* victim = from->running.back();  // what was begun last
    from->running.pop_back();
    ledger_.release(victim->blocks);
    taken.push_back({from, victim});
  }
  for (const auto& [work, victim] : taken) note_preempted(victim);
  return true;
}

// Of the flows that still have as much as the other one when a sequence has changed sides, or are
// of a less urgent class: the one with the most. So places cannot go back and forth.
Planner::Work* Planner::most_above(const Flow& flow, size_t own_running) {
  Work* best = nullptr;
  const auto load = [](const Work& work) {
    return static_cast<double>(work.running.size()) / work.flow->weight;
  };
  for (Work& work : works_) {
    if (work.running.empty() || work.flow == &flow) continue;
    if (work.flow->priority < flow.priority) continue;
    if (work.flow->priority == flow.priority &&
        static_cast<double>(work.running.size() - 1) / work.flow->weight <
            static_cast<double>(own_running + 1) / flow.weight)
      continue;
    if (best == nullptr ||
        std::pair(work.flow->priority, load(work)) > std::pair(best->flow->priority, load(*best)))
      best = &work;
  }
  return best;
}

}  // namespace deltad
