#include "engine/scheduler.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "engine/block_ledger.h"

namespace deltad {
namespace {

class Planner {
 public:
  explicit Planner(const SchedulerState& state)
      : state_(state),
        options_(state.options),
        kv_(*state.kv),
        block_tokens_(kv_.block_tokens()),
        ledger_(kv_.pool()) {}

  StepPlan run() {
    choose_variants();
    plan_generating();
    plan_prompts();
    assign_slots();
    return std::move(plan_);
  }

 private:
  // With more distinct variants than slots, those go whose sequences have waited longest; the base
  // needs no slot.
  void choose_variants() {
    std::map<const Variant*, uint64_t> turns;
    for (const Sequence* s : state_.running) {
      if (s->variant() == nullptr) continue;
      const auto [at, added] = turns.emplace(s->variant(), s->turn);
      if (!added) at->second = std::min(at->second, s->turn);
    }
    std::vector<std::pair<uint64_t, const Variant*>> order;
    for (const auto& [variant, turn] : turns) order.push_back({turn, variant});
    std::sort(order.begin(), order.end());
    for (const auto& [turn, variant] : order) {
      if (!slot_left()) break;
      chosen_.insert(variant);
    }
  }
  bool slot_left() const { return static_cast<int32_t>(chosen_.size()) < options_.max_slots; }
  bool has_slot(const Sequence* s) const {
    return s->variant() == nullptr || chosen_.count(s->variant()) > 0;
  }

  void plan_generating() {
    std::vector<Sequence*> ready;
    bool prompts = !state_.waiting.empty();
    for (Sequence* s : state_.running) {
      if (!s->generating())
        prompts = true;
      else if (has_slot(s))
        ready.push_back(s);
    }
    // More than a step holds: those go that have waited longest. Prompts always keep some rows.
    const int32_t kept = prompts ? least_prompt_rows() : 0;
    const auto most = static_cast<size_t>(options_.max_step_rows - kept);
    if (ready.size() > most) {
      std::sort(ready.begin(), ready.end(),
                [](const Sequence* a, const Sequence* b) { return a->turn < b->turn; });
      ready.resize(most);
    }
    // Memory is given in the order in which it is not taken away, so a victim has no rows yet.
    std::sort(ready.begin(), ready.end(), keeps_memory_before);
    std::vector<Sequence*> victims = state_.running;
    std::sort(victims.begin(), victims.end(), keeps_memory_before);
    for (Sequence* s : ready) {
      if (is_preempted(s)) break;  // and so are all that follow
      const bool grows = kv_.blocks_for(s->size()) > static_cast<int32_t>(s->blocks.size());
      while (grows && !ledger_.take(1)) {
        Sequence* victim = victims.back();
        victims.pop_back();
        ledger_.release(victim->blocks);
        plan_.preempted.push_back(victim);
        preempted_.insert(victim);
        if (victim == s) break;
      }
      if (is_preempted(s)) break;
      if (grows) plan_.grown.push_back(s);
      plan_.rows.push_back({s, s->computed, 1, -1});
      ++plan_.generating_rows;
    }
  }

  void plan_prompts() {
    std::vector<Sequence*> prompts;
    for (Sequence* s : state_.running)
      if (!s->generating() && !is_preempted(s)) prompts.push_back(s);
    std::sort(prompts.begin(), prompts.end(), Sooner());
    auto running = prompts.begin();
    auto waiting = state_.waiting.begin();
    // Nobody is admitted into memory that was just taken from somebody.
    bool admitting = plan_.preempted.empty();
    auto count = static_cast<int32_t>(state_.running.size());
    while (prompt_rows_left() > 0) {
      const bool more_waiting = admitting && waiting != state_.waiting.end();
      if (running == prompts.end() && !more_waiting) break;
      if (!more_waiting || (running != prompts.end() && Sooner()(*running, *waiting))) {
        Sequence* s = *running++;
        if (has_slot(s)) plan_chunk(s, s->computed, true);
        continue;
      }
      // Strictly in order: a long prompt that waits for memory is not overtaken for ever.
      if (count >= options_.max_running || !admit(*waiting)) {
        admitting = false;
        continue;
      }
      ++count;
      Sequence* s = *waiting++;
      if (!has_slot(s) && slot_left()) chosen_.insert(s->variant());
      // Without a slot it waits for its turn among the running.
      const auto cached = static_cast<int32_t>(plan_.admitted.back().cached.size());
      if (has_slot(s)) plan_chunk(s, cached * block_tokens_, false);
    }
  }

  bool admit(Sequence* s) {
    Admission admission{s, {}, 0};
    if (!s->wants_prompt_logprobs())
      admission.cached = kv_.match(s->keys, s->tokens, 0, (s->size() - 1) / block_tokens_);
    const int32_t held = kv_.blocks_for(s->size());
    admission.fresh = held - static_cast<int32_t>(admission.cached.size());
    // Room to go on with; more for one that was preempted, lest it is the next victim again.
    const int32_t lifetime = kv_.blocks_for(std::max(s->prompt_tokens, s->length_limit - 1));
    const int32_t wanted = 1 + (s->preempted ? static_cast<int32_t>(state_.running.size()) : 0);
    const int32_t spare = std::min(wanted, lifetime - held);
    ledger_.retain(admission.cached);
    if (ledger_.available() < admission.fresh + spare) {
      ledger_.release(admission.cached);
      return false;
    }
    ledger_.take(admission.fresh);
    plan_.admitted.push_back(std::move(admission));
    return true;
  }

  // Plans the next rows of a prompt of which `computed` tokens are done.
  void plan_chunk(Sequence* s, int32_t computed, bool may_adopt) {
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
    int32_t rows = std::min(prompt_rows_left(), s->size() - computed);
    if (s->wants_prompt_logprobs()) rows = std::min(rows, options_.max_prompt_logit_rows);
    if (computed + rows < s->size()) {  // chunks end where blocks end, if they can
      const int32_t end = (computed + rows) / block_tokens_ * block_tokens_;
      if (end > computed) rows = end - computed;
    }
    if (kv_.prefix_cache()) {  // only then have sequences keys
      for (int32_t b = block; (b + 1) * block_tokens_ <= computed + rows; ++b)
        in_step_.insert(s->keys[static_cast<size_t>(b) + 1]);
    }
    plan_.rows.push_back({s, computed, rows, -1});
    plan_.prompt_rows += rows;
  }

  int32_t least_prompt_rows() const { return std::min(block_tokens_, options_.max_step_rows / 2); }
  int32_t prompt_rows_left() const {
    int64_t allowed = options_.max_step_rows - plan_.generating_rows;
    if (plan_.generating_rows > 0) {
      const int64_t in_time =
          state_.cost.prompt_rows_within(options_.step_seconds, plan_.generating_rows);
      allowed = std::min(allowed, std::max<int64_t>(in_time, least_prompt_rows()));
    }
    return static_cast<int32_t>(allowed) - plan_.prompt_rows;
  }

  void assign_slots() {
    std::map<const Variant*, int32_t> slots;
    for (PlannedRows& r : plan_.rows) {
      const Variant* variant = r.sequence->variant();
      if (variant == nullptr) continue;
      const auto [at, added] = slots.emplace(variant, static_cast<int32_t>(plan_.slots.size()));
      if (added) plan_.slots.push_back(variant);
      r.slot = at->second;
    }
    CHECK(static_cast<int32_t>(plan_.slots.size()) <= options_.max_slots, "too many slots planned");
    std::stable_sort(plan_.rows.begin(), plan_.rows.end(),
                     [](const PlannedRows& a, const PlannedRows& b) { return a.slot < b.slot; });
  }

  static bool keeps_memory_before(const Sequence* a, const Sequence* b) {
    return std::pair(a->request.priority, a->admission) <
           std::pair(b->request.priority, b->admission);
  }
  bool is_preempted(Sequence* s) const { return preempted_.count(s) > 0; }

  const SchedulerState& state_;
  const SchedulerOptions& options_;
  const KvCache& kv_;
  const int32_t block_tokens_;
  BlockLedger ledger_;
  StepPlan plan_;
  std::unordered_set<const Variant*> chosen_;
  std::unordered_set<Sequence*> preempted_;
  std::unordered_set<BlockKey, BlockKeyHash> in_step_;
};

}  // namespace

StepPlan plan_step(const SchedulerState& state) { return Planner(state).run(); }

void end_turns(const StepPlan& plan, uint64_t& turns) {
  std::vector<Sequence*> served;
  for (const PlannedRows& rows : plan.rows) served.push_back(rows.sequence);
  std::sort(served.begin(), served.end(),
            [](const Sequence* a, const Sequence* b) { return a->turn < b->turn; });
  for (Sequence* s : served) s->turn = ++turns;
}

}  // namespace deltad
