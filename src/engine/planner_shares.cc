// How a step is shared between generating rows and prompts when it cannot take all.
#include <algorithm>
#include <optional>

#include "engine/fair_share.h"
#include "engine/planner.h"

namespace deltad {

// Whether a sequence that waits may be admitted without anybody being preempted for it.
bool Planner::places_free() const {
  return open_ && count_ + static_cast<int32_t>(granted_.size()) < options_.max_running;
}

// The most urgent class in which a prompt could go on or begin.
std::optional<int32_t> Planner::most_urgent_prompts() const {
  std::optional<int32_t> most;
  const auto see = [&](int32_t priority) { most = std::min(most.value_or(priority), priority); };
  for (const Work& work : works_)
    if (work.more_prompts() && !work.background()) see(work.flow->priority);
  for (const auto& [s, grant] : granted_)
    if (s->request.priority != kBackgroundPriority) see(s->request.priority);
  if (!places_free()) return most;
  for (const auto& [priority, in] : state_.waiting.classes()) {
    if (in.waiting.empty() || priority == kBackgroundPriority) continue;
    see(priority);
    break;
  }
  return most;
}

constexpr double kMostOnCredit = 0.75;  // of a step: what goes on does not stand still

// Prompts always keep some rows, and more if they are owed more: what each flow's share leaves them
// (fair_share.h), or what is left when flows with credit go before those without.
size_t Planner::generating_allowed(size_t ready) {
  double bytes = 0;
  VariantSet variants;
  for (const Work& work : works_) {
    if (work.generating.empty()) continue;
    const Variant* variant = work.generating.front()->variant();
    if (variant != nullptr && variants.insert(variant))
      bytes += static_cast<double>(variant->bytes);
  }
  const StepCost& cost = state_.cost;
  longest_ = std::max(options_.step_seconds, cost.seconds(static_cast<int32_t>(ready), 0, bytes));
  const auto all = static_cast<size_t>(options_.max_step_rows);
  const std::optional<int32_t> priority = most_urgent_prompts();
  if (!priority) return std::min(ready, all);
  const size_t usual = all - static_cast<size_t>(least_prompt_rows());

  // Fractions of the step: of its rows, or of its time beside what is fixed.
  const double variable = std::max(longest_ - cost.seconds(0, 0, bytes), 1e-9);
  const double row = 1.0 / options_.max_step_rows;
  const double per_generating = std::max(cost.generating_row() / variable, row);
  const double per_prompt = std::max(cost.prompt_row() / variable, row);

  const auto at = state_.waiting.classes().find(*priority);
  const bool open = places_free() && !at->second.waiting.empty();
  double only_wait = open ? at->second.waiting_weight : 0;  // the weight of flows that only wait
  std::vector<ShareDemand> all_flows, with_credit, without;
  double capacity = 1;
  int64_t tokens = open ? options_.max_step_rows : 0;
  for (const Work& work : works_) {
    const double rows = static_cast<double>(work.generating.size()) * per_generating;
    if (work.flow->priority < *priority) capacity -= rows;
    if (work.flow->priority != *priority) continue;
    int64_t own = 0;
    for (const Sequence* s : work.prompts) own += s->uncomputed();
    if (work.more_waiting() && granted_.count(*work.next_waiting) > 0)
      own += (*work.next_waiting)->size();
    tokens += own;
    double prompt = static_cast<double>(own) * per_prompt;
    if (open && work.more_waiting()) {
      only_wait -= work.flow->weight;
      prompt += 1;
    }
    all_flows.push_back({work.flow->weight, rows, prompt});
    (work.flow->has_credit() ? with_credit : without).push_back(all_flows.back());
  }
  only_wait = std::max(only_wait, 0.0);
  const bool waits_with_credit = open && (*at->second.waiting.begin())->has_credit();
  double prompts = share_out(std::move(all_flows), only_wait, capacity).prompts;
  if ((!with_credit.empty() || waits_with_credit) && !without.empty()) {
    const SharedOut first =
        share_out(std::move(with_credit), waits_with_credit ? only_wait : 0, capacity);
    const SharedOut then =
        share_out(std::move(without), waits_with_credit ? 0 : only_wait, first.left);
    prompts = std::max(prompts, std::min(first.prompts + then.prompts, kMostOnCredit));
  }
  const double owed = prompts / per_prompt;
  owed_rows_ = static_cast<int32_t>(
      std::min({owed, static_cast<double>(tokens), static_cast<double>(options_.max_step_rows)}));
  const double beside = std::max((1 - owed_rows_ * per_prompt) / per_generating, 0.0);
  if (owed_rows_ <= least_prompt_rows() || ready <= std::min(usual, static_cast<size_t>(beside))) {
    owed_rows_ = 0;  // they get it anyway
    return std::min(ready, usual);
  }
  // One at least: what fills a step up takes no memory from others.
  return std::min(usual, std::max<size_t>(1, static_cast<size_t>(beside + 1e-6)));
}

}  // namespace deltad
