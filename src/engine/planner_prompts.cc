// Prompts and admissions of one step.
#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

#include "engine/planner.h"

namespace deltad {

// Class by class, in a class the flow with the least key. The flows with sequences that run are in
// a heap; those that only wait stand in the queue's order already.
void Planner::plan_prompts() {
  for (Work& work : works_)
    std::erase_if(work.prompts, [this](Sequence* s) { return is_preempted(s); });
  plan_overdue();
  for (const auto& [priority, in] : state_.waiting.classes())
    if (priority != kBackgroundPriority) plan_class(priority, in);
}

void Planner::plan_class(int32_t priority, const FlowClass& in) {
  using Entry = std::tuple<double, RequestHandle, size_t>;  // key, next sequence, work
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap;
  const auto push = [&](size_t i) {
    const Work& work = works_[i];
    if (const Sequence* next = next_prompt(work)) heap.push({key(work), next->handle, i});
  };
  for (size_t i = 0; i < works_.size(); ++i)
    if (works_[i].flow->priority == priority) push(i);
  auto only_waits = in.waiting.begin();
  while (prompt_rows_left(nullptr) > 0) {
    while (only_waits != in.waiting.end() && work_index_.count(*only_waits) > 0) ++only_waits;
    const bool more = open_ && only_waits != in.waiting.end();
    if (heap.empty() && !more) break;
    size_t next = 0;
    if (more && (heap.empty() ||
                 std::pair((*only_waits)->key(), (*(*only_waits)->waiting.begin())->handle) <
                     std::pair(std::get<0>(heap.top()), std::get<1>(heap.top())))) {
      next = work_of(*only_waits);
    } else {
      next = std::get<2>(heap.top());
      heap.pop();
    }
    if (plan_next(works_[next])) push(next);
  }
}

// One flow a step whose prompts have stood still for the age bound: who has waited longest.
void Planner::plan_overdue() {
  const Flow* oldest = oldest_waiting();
  for (const Work& work : works_)
    if (work.more_prompts() && !work.background() &&
        (oldest == nullptr || work.flow->since < oldest->since))
      oldest = work.flow;
  if (oldest != nullptr && overdue(oldest->since) && prompt_rows_left(nullptr) > 0)
    plan_next(works_[work_of(oldest)]);
}

const Sequence* Planner::next_prompt(const Work& work) const {
  const bool waiting = work.more_waiting() && may_admit(*work.next_waiting);
  if (!work.more_prompts()) return waiting ? *work.next_waiting : nullptr;
  Sequence* prompt = work.prompts[work.next_prompt];
  return waiting && Sooner()(*work.next_waiting, prompt) ? *work.next_waiting : prompt;
}

// The flow's next prompt. False: none of it can go in this step.
bool Planner::plan_next(Work& work) {
  const Sequence* next = next_prompt(work);
  if (next == nullptr || filling_rows_left(*work.flow) <= 0) return false;
  const int32_t before = plan_.prompt_rows;
  if (work.more_prompts() && next == work.prompts[work.next_prompt]) {
    Sequence* s = work.prompts[work.next_prompt++];
    if (has_slot(s)) plan_chunk(s, s->computed, true);
  } else {
    // What its delta costs is more than is left: first of all in a later step.
    if (prompt_rows_left(next->variant()) <= 0) return false;
    Sequence* s = *work.next_waiting;
    // Strictly in order: a long prompt that waits for memory is not overtaken for ever. Only those
    // that have taken a place from somebody go on.
    if (!admit(s)) {
      open_ = false;
      return work.more_prompts();
    }
    ++work.next_waiting;
    if (!has_slot(s) && slot_left()) chosen_.insert(s->variant());
    // Without a slot it waits for its turn among the running.
    const auto cached = static_cast<int32_t>(plan_.admitted.back().cached.size());
    if (has_slot(s)) plan_chunk(s, std::max(cached * block_tokens_, s->swapped), false);
  }
  work.counter += (plan_.prompt_rows - before) / work.flow->weight;
  return true;
}

std::vector<int32_t> Planner::cached_blocks(const Sequence* s) const {
  if (s->wants_prompt_logprobs()) return {};
  return kv_.match(s->keys, s->tokens, 0, (s->size() - 1) / block_tokens_);
}

int32_t Planner::wanted_blocks(const Sequence* s, const std::vector<int32_t>& cached) const {
  const int32_t held = kv_.blocks_for(s->size());
  // Room to go on with; more for one that was preempted, lest it is the next victim again.
  const int32_t lifetime = kv_.blocks_for(std::max(s->prompt_tokens, s->length_limit - 1));
  const int32_t spare = 1 + (s->preempted ? static_cast<int32_t>(state_.running.size()) : 0);
  return held - static_cast<int32_t>(cached.size()) + std::min(spare, lifetime - held);
}

bool Planner::admit(Sequence* s) {
  AdmittedSequence admission{s, cached_blocks(s), 0, false};
  const auto granted = granted_.find(s);
  if (granted != granted_.end()) {
    ledger_.give(granted->second.blocks);
    admission.took_place = granted->second.took_place;
    granted_.erase(granted);
  } else if (!places_free()) {
    return false;
  }
  admission.fresh = kv_.blocks_for(s->size()) - static_cast<int32_t>(admission.cached.size());
  ledger_.retain(admission.cached);
  if (ledger_.available() < wanted_blocks(s, admission.cached)) {
    ledger_.release(admission.cached);
    return false;
  }
  ledger_.take(admission.fresh);
  ++count_;
  plan_.admitted.push_back(std::move(admission));
  return true;
}

// Plans the next rows of a prompt of which `computed` tokens are done.
void Planner::plan_chunk(Sequence* s, int32_t computed, bool may_adopt) {
  const bool aligned = computed % block_tokens_ == 0;
  const int32_t full = (s->size() - 1) / block_tokens_;  // the last token is always computed
  int32_t block = computed / block_tokens_;
  if (kv_.prefix_cache() && aligned && !s->wants_prompt_logprobs() && block < full) {
    if (may_adopt) {
      std::vector<int32_t> found = kv_.match(s->keys, s->tokens, block, full);
      if (!found.empty()) {
        const auto first = static_cast<size_t>(block);
        ledger_.retain(found);
        ledger_.release(std::span(s->blocks).subspan(first, found.size()));
        block += static_cast<int32_t>(found.size());
        computed = block * block_tokens_;
        plan_.adopted.push_back({s, static_cast<int32_t>(first), std::move(found)});
      }
    }
    // Another sequence computes the same block in this step: take it in the next.
    if (block < full && in_step_.count(s->keys[static_cast<size_t>(block) + 1]) > 0) return;
  }
  int32_t rows =
      std::min({prompt_rows_left(s->variant()), filling_rows_left(*s->flow), s->size() - computed});
  if (s->wants_prompt_logprobs()) rows = std::min(rows, options_.max_prompt_logit_rows);
  if (rows <= 0) return;
  if (computed + rows < s->size()) {  // chunks end where blocks end, if they can
    const int32_t end = (computed + rows) / block_tokens_ * block_tokens_;
    if (end > computed) rows = end - computed;
  }
  if (kv_.prefix_cache()) {  // only then have sequences keys
    for (int32_t b = block; (b + 1) * block_tokens_ <= computed + rows; ++b)
      in_step_.insert(s->keys[static_cast<size_t>(b) + 1]);
  }
  add_rows(s, computed, rows);
  plan_.prompt_rows += rows;
}

int32_t Planner::least_prompt_rows() const {
  return std::min(block_tokens_, options_.max_step_rows / 2);
}

// Whoever has credit and comes next waits for the step that runs, so those without credit fill it
// only in part while there is somebody who has.
constexpr double kFilled = 0.5;  // of the step's time

bool Planner::somebody_has_credit(const FlowClass& in) const {
  if (!in.idle.empty() && in.idle.begin()->second->has_credit()) return true;
  if (!in.waiting.empty() && (*in.waiting.begin())->has_credit()) return true;
  return std::any_of(works_.begin(), works_.end(), [&](const Work& work) {
    return work.flow->home == &in && work.flow->has_credit();
  });
}

// For prompts of the flow, beside what prompt_rows_left says.
int32_t Planner::filling_rows_left(const Flow& flow) const {
  if (flow.has_credit() || !somebody_has_credit(*flow.home)) return options_.max_step_rows;
  const int64_t rows = state_.cost.prompt_rows_within(kFilled * options_.step_seconds,
                                                      plan_.generating_rows, delta_bytes_);
  return static_cast<int32_t>(std::max<int64_t>(rows, least_prompt_rows())) - plan_.prompt_rows;
}

// For a prompt of the variant.
int32_t Planner::prompt_rows_left(const Variant* variant) const {
  if (background_) return background_rows_left(variant);
  int64_t allowed = options_.max_step_rows - plan_.generating_rows;
  if (plan_.generating_rows > 0) {
    const int64_t in_time = state_.cost.prompt_rows_within(
        options_.step_seconds, plan_.generating_rows, bytes_with(variant));
    allowed =
        std::min<int64_t>(allowed, std::max<int64_t>({in_time, least_prompt_rows(), owed_rows_}));
  }
  return static_cast<int32_t>(allowed) - plan_.prompt_rows;
}

}  // namespace deltad
