#include "engine/planner.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace deltad {

// A flood gives its own memory back before that of those it stands beside.
bool Planner::keeps_memory_before(const Sequence* a, const Sequence* b) {
  return std::tuple(a->request.priority, a->flow->counter, a->admission) <
         std::tuple(b->request.priority, b->flow->counter, b->admission);
}

Planner::Planner(const SchedulerState& state)
    : state_(state),
      options_(state.options),
      kv_(*state.kv),
      block_tokens_(kv_.block_tokens()),
      ledger_(kv_.pool()),
      count_(static_cast<int32_t>(state.running.size())) {}

StepPlan Planner::run() {
  group();
  choose_variants();
  make_room();
  plan_generating();
  plan_prompts();
  fill_up();
  plan_background();
  assign_slots();
  return std::move(plan_);
}

// With more distinct variants than slots, those go whose sequences have waited longest; the base
// needs no slot.
void Planner::choose_variants() {
  std::vector<std::pair<const Variant*, uint64_t>> order;  // with the longest wait
  for (const Work& work : works_) {
    if (work.background()) continue;
    uint64_t turn = work.running.front()->turn;
    for (const Sequence* s : work.running) turn = std::min(turn, s->turn);
    if (const Variant* variant = work.running.front()->variant()) order.push_back({variant, turn});
  }
  // A variant has a flow in each class.
  std::sort(order.begin(), order.end());
  order.erase(std::unique(order.begin(), order.end(),
                          [](const auto& a, const auto& b) { return a.first == b.first; }),
              order.end());
  if (static_cast<int32_t>(order.size()) > options_.max_slots)
    std::sort(order.begin(), order.end(),
              [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const auto& [variant, turn] : order) {
    if (!slot_left()) break;
    chosen_.insert(variant);
  }
}

size_t Planner::work_of(const Flow* flow) {
  const auto [at, added] = work_index_.emplace(flow, works_.size());
  if (added) {
    works_.push_back({});
    works_.back().flow = flow;
    works_.back().counter = flow->counter;
    works_.back().running.reserve(static_cast<size_t>(flow->members) - flow->waiting.size());
    works_.back().next_waiting = flow->waiting.begin();
  }
  return at->second;
}

void Planner::group() {
  for (Sequence* s : state_.running) {
    works_[work_of(s->flow)].running.push_back(s);
    growing_ += grows(s);
  }
}

double Planner::key(const Work& work) const {
  const Sequence* next = next_prompt(work);
  return work.counter + (present(next->variant()) ? 0 : work.flow->entry);
}

double Planner::bytes_with(const Variant* variant) const {
  return delta_bytes_ + (present(variant) ? 0 : static_cast<double>(variant->bytes));
}

void Planner::note_preempted(Sequence* s) {
  plan_.preempted.push_back(s);
  preempted_.insert(s);
  --count_;
}

void Planner::add_rows(Sequence* s, int32_t first, int32_t rows) {
  const Variant* variant = s->variant();
  if (variant != nullptr && present_.insert(variant))
    delta_bytes_ += static_cast<double>(variant->bytes);
  plan_.rows.push_back({s, first, rows, -1});
}

void Planner::plan_generating() {
  size_t ready_count = 0;
  for (Work& work : works_) {
    const bool slot = !work.running.empty() && has_slot(work.running.front()) && !work.background();
    work.generating.reserve(work.running.size());
    for (Sequence* s : work.running) {
      if (!s->generating())
        work.prompts.push_back(s);
      else if (slot)
        work.generating.push_back(s);
    }
    std::sort(work.prompts.begin(), work.prompts.end(), Sooner());
    ready_count += work.generating.size();
  }
  std::vector<Sequence*> ready = choose_generating(generating_allowed(ready_count));
  // Where memory lacks, it is given in the order in which it is not taken away, so a victim has no
  // rows yet.
  if (ledger_.available() < growing_) std::sort(ready.begin(), ready.end(), keeps_memory_before);
  std::vector<Sequence*> victims;
  for (Sequence* s : ready) {
    if (is_preempted(s)) break;  // and so are all that follow
    while (grows(s) && !ledger_.take(1)) {
      if (victims.empty()) {
        for (Sequence* v : state_.running)
          if (!is_preempted(v)) victims.push_back(v);
        std::sort(victims.begin(), victims.end(), keeps_memory_before);
      }
      Sequence* victim = victims.back();
      victims.pop_back();
      ledger_.release(victim->blocks);
      note_preempted(victim);
      open_ = false;  // nobody is admitted into memory that was just taken from somebody
      if (victim == s) break;
    }
    if (is_preempted(s)) break;
    if (grows(s)) plan_.grown.push_back(s);
    add_rows(s, s->computed, 1);
    ++plan_.generating_rows;
  }
}

// More than a step holds: those go that have waited longer than the age bound, then by class, by
// counter, and within a flow by the longest wait.
std::vector<Sequence*> Planner::choose_generating(size_t most) {
  std::vector<Sequence*> chosen;
  size_t ready = 0;
  for (const Work& work : works_) ready += work.generating.size();
  if (ready <= most) {
    for (const Work& work : works_)
      chosen.insert(chosen.end(), work.generating.begin(), work.generating.end());
    return chosen;
  }
  const auto by_turn = [](const Sequence* a, const Sequence* b) { return a->turn < b->turn; };
  std::vector<Sequence*> late;
  using Entry = std::tuple<int32_t, double, uint64_t, size_t>;  // priority, key, turn, work
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap;
  std::vector<bool> has_rows(works_.size());
  const auto push = [&](size_t i) {
    const Work& work = works_[i];
    if (work.next_generating == work.generating.size()) return;
    const double entry = has_rows[i] ? 0 : work.flow->entry;
    heap.push({work.flow->priority, work.counter + entry,
               work.generating[work.next_generating]->turn, i});
  };
  for (size_t i = 0; i < works_.size(); ++i) {
    Work& work = works_[i];
    std::sort(work.generating.begin(), work.generating.end(), by_turn);
    // A turn's order is that of the time of its step.
    while (work.next_generating < work.generating.size() &&
           overdue(work.generating[work.next_generating]->served))
      late.push_back(work.generating[work.next_generating++]);
    push(i);
  }
  std::sort(late.begin(), late.end(), by_turn);
  for (Sequence* s : late) {
    if (chosen.size() < most)
      chosen.push_back(s);
    else
      left_out_.push_back(s);
  }
  while (chosen.size() < most && !heap.empty()) {
    const size_t i = std::get<3>(heap.top());
    heap.pop();
    Work& work = works_[i];
    chosen.push_back(work.generating[work.next_generating++]);
    has_rows[i] = true;
    work.counter += 1 / work.flow->weight;
    push(i);
  }
  while (!heap.empty()) {
    Work& work = works_[std::get<3>(heap.top())];
    heap.pop();
    left_out_.insert(left_out_.end(),
                     work.generating.begin() + static_cast<ptrdiff_t>(work.next_generating),
                     work.generating.end());
  }
  return chosen;
}

// Rows that prompts were owed, but could not use, go to generating sequences after all.
void Planner::fill_up() {
  for (Sequence* s : left_out_) {
    const int32_t rows = plan_.generating_rows + plan_.prompt_rows;
    if (rows >= options_.max_step_rows) return;
    if (is_preempted(s)) continue;
    if (state_.cost.seconds(plan_.generating_rows + 1, plan_.prompt_rows,
                            bytes_with(s->variant())) > longest_)
      continue;
    if (grows(s) && !ledger_.take(1)) continue;
    if (grows(s)) plan_.grown.push_back(s);
    add_rows(s, s->computed, 1);
    ++plan_.generating_rows;
  }
}

void Planner::assign_slots() {
  std::unordered_map<const Variant*, int32_t> slots;
  const Variant* last = nullptr;  // most rows of one flow stand together
  int32_t last_slot = -1;
  for (PlannedRows& r : plan_.rows) {
    const Variant* variant = r.sequence->variant();
    if (variant == nullptr) continue;
    if (variant != last) {
      last = variant;
      const auto [at, added] = slots.emplace(variant, static_cast<int32_t>(plan_.slots.size()));
      if (added) plan_.slots.push_back(variant);
      last_slot = at->second;
    }
    r.slot = last_slot;
  }
  CHECK(static_cast<int32_t>(plan_.slots.size()) <= options_.max_slots, "too many slots planned");
  std::stable_sort(plan_.rows.begin(), plan_.rows.end(),
                   [](const PlannedRows& a, const PlannedRows& b) { return a.slot < b.slot; });
}

}  // namespace deltad
