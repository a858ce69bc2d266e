// One step of EngineCore, from the plan to its commit.
#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/engine_core.h"

namespace deltad {
namespace {

bool is_stop(const Request& request, int32_t token) {
  return std::find(request.stop_ids.begin(), request.stop_ids.end(), token) !=
         request.stop_ids.end();
}

// The rows are sorted by slot.
std::vector<StepGroup> groups_of(const StepPlan& plan) {
  std::vector<StepGroup> groups;
  int32_t slot = -2;
  for (const PlannedRows& rows : plan.rows) {
    if (rows.slot != slot) {
      slot = rows.slot;
      const bool base = slot < 0;
      groups.push_back({base ? std::string() : plan.slots[static_cast<size_t>(slot)]->name, 0});
    }
    groups.back().rows += rows.rows;
  }
  return groups;
}

// work(i) for 0 ≤ i < n on the kernel threads; it throws nothing.
template <typename Work>
void on_kernel_threads(ModelRunner& runner, size_t n, const Work& work) {
  runner.parallel_for(
      static_cast<int64_t>(n),
      [](void* context, int64_t i) {
        (*static_cast<const Work*>(context))(static_cast<size_t>(i));
      },
      const_cast<void*>(static_cast<const void*>(&work)));
}

}  // namespace

void EngineCore::step() {
  expire();
  if (idle()) return;
  StepPlan plan = next_plan();
  CHECK(!plan.empty(), "requests are there, but the plan is empty");
  ++step_number_;
  reserve(plan);
  if (plan.rows.empty()) return;

  const TimePoint begin = clock_.now();
  std::vector<Staged> staged(plan.rows.size());
  const Status done = execute(plan, staged);
  ++stats_.steps;
  stats_.last_step_rows = plan.generating_rows + plan.prompt_rows;
  stats_.last_step = groups_of(plan);
  if (!done.ok()) {
    ++failed_in_a_row_;
    log_error("step {} failed: {}", step_number_, done.message());
    for (const PlannedRows& rows : plan.rows) finish(rows.sequence, FinishReason::kError, done);
    return;
  }
  failed_in_a_row_ = 0;
  stats_.last_step_seconds = seconds(clock_.now() - begin);
  double delta_bytes = 0;
  for (const Variant* variant : plan.slots) delta_bytes += static_cast<double>(variant->bytes);
  state_.cost.observe(plan.generating_rows, plan.prompt_rows, stats_.last_step_seconds,
                      delta_bytes);
  commit(plan, staged);
}

StepPlan EngineCore::next_plan() {
  std::optional<StepPlan> ahead = std::exchange(ahead_, std::nullopt);
  if (ahead && !ahead->rows.empty()) {
    ++stats_.steps_planned_ahead;
    return std::move(*ahead);
  }
  state_.now = clock_.now();
  return plan_step(state_);
}

// A plan needs to know how many tokens a sequence has, not which: so those of this step stand there
// as long as it is made. Not where the step has rows of prompts: what others may reuse of them is
// known when they are there.
void EngineCore::plan_ahead(const StepPlan& plan, const std::vector<Staged>& staged) {
  if (plan.prompt_rows > 0) return;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    Sequence* s = plan.rows[i].sequence;
    s->computed += plan.rows[i].rows;
    if (staged[i].sampled) s->tokens.push_back(-1);
  }
  state_.now = clock_.now();
  ahead_ = plan_step(state_);
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    Sequence* s = plan.rows[i].sequence;
    s->computed -= plan.rows[i].rows;
    if (staged[i].sampled) s->tokens.pop_back();
  }
}

// Its place and blocks are for those that wait or would be preempted, so then a new plan is made. A
// plan also holds on to its variants, which may go with their last sequence.
void EngineCore::leave_ahead(const Sequence* s) {
  if (!ahead_) return;
  StepPlan& plan = *ahead_;
  const auto of_it = [s](const PlannedRows& rows) { return rows.sequence == s; };
  const auto rows = std::find_if(plan.rows.begin(), plan.rows.end(), of_it);
  const bool last_of_slot =
      rows != plan.rows.end() && rows->slot >= 0 &&
      std::count_if(plan.rows.begin(), plan.rows.end(),
                    [&](const PlannedRows& other) { return other.slot == rows->slot; }) == 1;
  if (!s->generating() || last_of_slot || !plan.preempted.empty() || state_.waiting.size() > 0) {
    ahead_.reset();
    return;
  }
  std::erase(plan.grown, s);
  if (rows == plan.rows.end()) return;
  plan.rows.erase(rows);
  --plan.generating_rows;
}

Batch EngineCore::batch_of(const StepPlan& plan, std::vector<LogitTask>& tasks,
                           std::vector<Staged>& staged) {
  Batch batch;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlannedRows& rows = plan.rows[i];
    const Sequence& s = *rows.sequence;
    const auto first_row = static_cast<int32_t>(batch.ids.size());
    const auto from = s.tokens.begin() + rows.first_position;
    batch.ids.insert(batch.ids.end(), from, from + rows.rows);
    const auto end_row = static_cast<int32_t>(batch.ids.size());
    // What a preempted sequence computes again may reach beyond its prompt.
    const int32_t prompt_rows = std::clamp(s.prompt_tokens - rows.first_position, 0, rows.rows);
    const int32_t end_of_prompt = first_row + prompt_rows;
    if (prompt_rows > 0)
      batch.spans.push_back({first_row, end_of_prompt, rows.first_position, s.blocks.data()});
    if (end_of_prompt < end_row)
      batch.spans.push_back(
          {end_of_prompt, end_row, rows.first_position + prompt_rows, s.blocks.data(), true});
    if (!batch.groups.empty() && batch.groups.back().slot == rows.slot)
      batch.groups.back().end_row = end_row;
    else
      batch.groups.push_back({first_row, end_row, rows.slot});
    // Row r of the sequence predicts token r + 1: one of the prompt's that is not scored yet, or
    // the next of the output.
    const auto scored = static_cast<int32_t>(s.prompt_logprobs.size());
    for (int32_t row = 0; row < rows.rows; ++row) {
      const int32_t predicted = rows.first_position + row + 1;
      LogitTask task{i, -1, -1};
      if (predicted < s.prompt_tokens) {
        if (!s.wants_prompt_logprobs() || predicted - 1 < scored) continue;
        task.scored = static_cast<int32_t>(staged[i].prompt.size());
        task.token = s.tokens[static_cast<size_t>(predicted)];
        staged[i].prompt.emplace_back();
      } else if (predicted == s.size() && s.size() < s.length_limit) {
        staged[i].sampled = true;
      } else {
        continue;
      }
      batch.logit_rows.push_back(first_row + row);
      tasks.push_back(task);
    }
  }
  return batch;
}

Status EngineCore::execute(const StepPlan& plan, std::vector<Staged>& staged) try {
  std::vector<LogitTask> tasks;
  const Batch batch = batch_of(plan, tasks, staged);
  std::vector<const VariantWeights*> slots;
  for (const Variant* variant : plan.slots) slots.push_back(variant->weights.get());
  if (device_samples(plan, tasks)) return sample_on_device(plan, batch, slots, tasks, staged);
  ASSIGN_OR_RETURN(const Logits logits, runner_.forward(batch, kv_.view(), slots));
  stage(plan, logits, tasks, staged);
  return {};
} catch (const std::exception& e) {
  return internal_error(std::string("the model's step threw: ") + e.what());
}

SampleInput EngineCore::sample_input(const StepPlan& plan, const LogitTask& task) const {
  const Sequence& s = *plan.rows[task.planned].sequence;
  const Request& request = s.request;
  SampleInput input;
  input.params = &request.sampling;
  input.counts = s.counts ? &*s.counts : nullptr;
  if (s.outputs() < request.min_tokens) input.barred = request.stop_ids;
  input.choice = request.choice;
  input.position = static_cast<uint64_t>(s.size());
  input.top = request.logprobs;
  return input;
}

bool EngineCore::device_samples(const StepPlan& plan, const std::vector<LogitTask>& tasks) const {
  const int32_t most = runner_.most_sampled_top();
  return most >= 0 && std::all_of(tasks.begin(), tasks.end(), [&](const LogitTask& task) {
           const Request& request = plan.rows[task.planned].sequence->request;
           return (task.scored >= 0 ? request.prompt_logprobs : request.logprobs) <= most;
         });
}

Status EngineCore::sample_on_device(const StepPlan& plan, const Batch& batch,
                                    std::span<const VariantWeights* const> slots,
                                    const std::vector<LogitTask>& tasks,
                                    std::vector<Staged>& staged) {
  std::vector<SampleRequest> wanted(tasks.size());
  std::vector<Status> statuses(tasks.size());
  // A row with penalties names every token that it has counted, and the device waits.
  on_kernel_threads(runner_, tasks.size(), [&](size_t i) {
    const LogitTask& task = tasks[i];
    const Request& request = plan.rows[task.planned].sequence->request;
    try {
      wanted[i] = task.scored >= 0 ? score_request(task.token, request.prompt_logprobs)
                                   : sample_request(sample_input(plan, task));
    } catch (const std::exception& e) {
      statuses[i] = internal_error(std::string("asking for a token failed: ") + e.what());
    }
  });
  for (const Status& status : statuses) RETURN_IF_ERROR(status);
  ASSIGN_OR_RETURN(
      const std::vector<SampleOutcome> outcomes,
      runner_.forward_sampled(batch, kv_.view(), slots, wanted, [&] { plan_ahead(plan, staged); }));
  CHECK(outcomes.size() == tasks.size(), "the model sampled another number of rows");
  for (size_t i = 0; i < tasks.size(); ++i) {
    Staged& out = staged[tasks[i].planned];
    Sampled token = sampled(outcomes[i]);
    if (!token.status.ok()) out.status = token.status;
    if (tasks[i].scored >= 0)
      out.prompt[static_cast<size_t>(tasks[i].scored)] = std::move(token.scored);
    else
      out.token = std::move(token);
  }
  return {};
}

void EngineCore::stage(const StepPlan& plan, const Logits& logits,
                       const std::vector<LogitTask>& tasks, std::vector<Staged>& staged) {
  CHECK(logits.vocab.size() == tasks.size(), "the model gave another number of logit rows");
  // Each task writes to a place of its own.
  std::vector<Status> statuses(tasks.size());
  on_kernel_threads(runner_, tasks.size(), [&](size_t i) {
    const LogitTask& task = tasks[i];
    const Request& request = plan.rows[task.planned].sequence->request;
    float* row = logits.values.row<float>(static_cast<int64_t>(i));
    const int64_t vocab = logits.vocab[i];
    Staged& out = staged[task.planned];
    Status& status = statuses[i];
    try {
      if (task.scored >= 0) {
        Result<Scored> scored = score(row, vocab, task.token, request.prompt_logprobs);
        if (scored.ok())
          out.prompt[static_cast<size_t>(task.scored)] = std::move(*scored);
        else
          status = scored.status();
        return;
      }
      SampleInput input = sample_input(plan, task);
      input.logits = row;
      input.vocab = vocab;
      out.token = sample(input);
      status = out.token.status;
    } catch (const std::exception& e) {
      status = internal_error(std::string("sampling failed: ") + e.what());
    }
  });
  for (size_t i = 0; i < tasks.size(); ++i)
    if (!statuses[i].ok()) staged[tasks[i].planned].status = statuses[i];
}

void EngineCore::commit(const StepPlan& plan, std::vector<Staged>& staged) {
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    if (staged[i].status.ok())
      commit_sequence(plan.rows[i], staged[i]);
    else
      finish(plan.rows[i].sequence, FinishReason::kError, staged[i].status);
  }
}

void EngineCore::commit_sequence(const PlannedRows& rows, Staged& staged) {
  Sequence* s = rows.sequence;
  s->computed += rows.rows;
  if (s->outputs() == 0) stats_.prompt_tokens += static_cast<uint64_t>(rows.rows);
  if (kv_.prefix_cache()) {
    for (; (s->published + 1) * kv_.block_tokens() <= s->computed; ++s->published)
      kv_.publish(s->keys, s->tokens, s->published, s->blocks[static_cast<size_t>(s->published)]);
  }
  for (Scored& scored : staged.prompt) {
    const size_t at = s->prompt_logprobs.size() + 1;
    s->prompt_logprobs.push_back({s->tokens[at], scored.logprob});
    s->prompt_top.push_back(std::move(scored.top));
  }
  if (s->request.prompt_logprobs >= 0 && !s->prompt_logprobs_delivered &&
      !s->wants_prompt_logprobs()) {
    TokenEvent event;
    event.kind = TokenEvent::Kind::kPromptLogprobs;
    event.prompt = s->prompt_logprobs;
    event.prompt_top = std::move(s->prompt_top);
    s->prompt_logprobs_delivered = true;
    deliver(s->request, event);
  }
  if (s->uncomputed() > 0) return;
  if (!staged.sampled) {
    finish(s, FinishReason::kLength);  // max_tokens 0: the prompt is all
    return;
  }

  const int32_t token = staged.token.token;
  if (s->first_token == TimePoint{}) s->first_token = clock_.now();
  s->tokens.push_back(token);
  if (s->counts) s->counts->add_output(token);
  if (kv_.prefix_cache()) s->extend_keys(kv_.block_tokens(), runner_.roles_differ());
  ++stats_.generated_tokens;
  const bool stop = is_stop(s->request, token);
  if (!stop || s->request.deliver_stop_token) {
    TokenEvent event;
    event.kind = TokenEvent::Kind::kToken;
    event.token = token;
    event.logprob = staged.token.scored.logprob;
    event.top = std::move(staged.token.scored.top);
    deliver(s->request, event);
  }
  if (stop)
    finish(s, FinishReason::kStop, {}, token);
  else if (s->size() >= s->length_limit)
    finish(s, FinishReason::kLength);
}

}  // namespace deltad
