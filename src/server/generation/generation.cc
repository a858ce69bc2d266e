#include "server/generation/generation.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace deltad {
namespace {

// The client's, or the server's own.
TimePoint deadline_of(const Serving& serving, const GenerationPlan& plan,
                      const RequestRecord& record) {
  if (serving.request_seconds <= 0) return plan.deadline;
  return std::min(plan.deadline, record.received() + from_seconds(serving.request_seconds));
}

}  // namespace

Generation::Generation(const Serving& serving, GenerationPlan plan,
                       std::unique_ptr<GenerationSink> sink, std::shared_ptr<Admission> admission,
                       uint64_t seed)
    : serving_(serving),
      plan_(std::move(plan)),
      sink_(std::move(sink)),
      admission_(std::move(admission)),
      sampling_(sampling_params(plan_.sampling, plan_.model.text->defaults, seed)),
      deadline_(deadline_of(serving_, plan_, sink_->record())) {
  ChoiceOptions options;
  options.stop = plan_.sampling.stop;
  options.skip_special = plan_.sampling.skip_special_tokens;
  options.include_stop = plan_.sampling.include_stop_str_in_output;
  options.logprobs = plan_.top_logprobs >= 0;
  for (const PromptTokens& prompt : plan_.prompts) {
    const size_t offset = plan_.echo ? count_characters(prompt.text) : 0;
    for (int32_t i = 0; i < plan_.sampling.n; ++i) {
      choices_.push_back(std::make_unique<Choice>(plan_.model.text->tokenizer, options, offset));
    }
  }
}

void Generation::start() {
  sink_->record().model = plan_.model.name;
  for (const PromptTokens& prompt : plan_.prompts) {
    usage_.prompt_tokens += static_cast<int64_t>(prompt.ids.size());
  }
  if (const ApiError error = submit_all()) return fail(error);
  admission_->used(usage_.prompt_tokens);
  sink_->record().metrics().path(PathPart::kSubmit,
                                 seconds(Clock::real().now() - sink_->record().received()));
  // Weak: while sequences run, their events keep this alive.
  sink_->on_disconnect([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->client_gone();
  });
  if (deadline_ == TimePoint::max()) return;
  sink_->on_deadline(deadline_, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->deadline_passed();
  });
}

ApiError Generation::submit_all() {
  for (; submitted_ < choices_.size(); ++submitted_) {
    const Result<Router::Ticket> ticket =
        serving_.router->submit(plan_.model, make_request(submitted_));
    if (!ticket.ok()) return api_error(ticket.status());
    choices_[submitted_]->ticket = *ticket;
    sink_->record().metrics().submitted(variant());
  }
  return {};
}

Request Generation::make_request(size_t index) {
  const SamplingFields& fields = plan_.sampling;
  const PromptTokens& prompt = prompt_of(index);
  Request request;
  request.id = choices_.size() == 1 ? sink_->record().id()
                                    : fmt::format("{}/{}", sink_->record().id(), index);
  request.follows = index > 0;
  request.prompt = prompt.ids;
  request.sampling = sampling_;
  request.choice = static_cast<int32_t>(index % static_cast<size_t>(fields.n));
  request.max_tokens = prompt.max_tokens;
  request.min_tokens = fields.min_tokens;
  request.stop_ids = fields.stop_token_ids;
  if (!fields.ignore_eos) {
    const std::vector<int32_t>& eos = plan_.model.text->eos_ids;
    request.stop_ids.insert(request.stop_ids.end(), eos.begin(), eos.end());
  }
  request.deliver_stop_token = fields.include_stop_str_in_output;
  request.logprobs = plan_.top_logprobs;
  if (plan_.echo) request.prompt_logprobs = plan_.top_logprobs;
  request.priority = fields.priority;
  request.received = sink_->record().received();
  request.deadline = deadline_;
  request.on_event = [self = shared_from_this(), index](const TokenEvent& event) {
    self->sink_->post(
        [self, index, event, at = Clock::real().now()] { self->on_event(index, event, at); });
  };
  return request;
}

void Generation::on_event(size_t index, const TokenEvent& event, TimePoint at) {
  switch (event.kind) {
    case TokenEvent::Kind::kPromptLogprobs:
      choices_[index]->prompt_logprobs = event;
      return;
    case TokenEvent::Kind::kToken:
      return on_token(index, event, at);
    case TokenEvent::Kind::kFinished:
      return on_finished(index, event);
  }
}

void Generation::on_token(size_t index, const TokenEvent& event, TimePoint at) {
  Choice& choice = *choices_[index];
  sink_->record().token(variant(), choice.last_token, at);
  choice.last_token = at;
  if (over_ || choice.closed) return;
  choice.stream.push(event);
  if (choice.stream.stopped()) {
    choice.stream.finish();
    send_piece(index, at, true);
    close_choice(index, "stop");
    serving_.router->cancel(choice.ticket);
  } else {
    send_piece(index, at, false);
  }
}

void Generation::on_finished(size_t index, const TokenEvent& event) {
  Choice& choice = *choices_[index];
  choice.ended = true;
  ++ended_;
  account(index, event);
  if (over_) return;
  if (!choice.closed) {
    switch (event.reason) {
      case FinishReason::kStop:
      case FinishReason::kLength:
        choice.stream.finish();
        send_piece(index, Clock::real().now(), true);
        close_choice(index, finish_reason_name(event.reason));
        break;
      case FinishReason::kError:
        return fail(api_error(event.status));
      case FinishReason::kCancelled:
      case FinishReason::kNone:
        return fail(api_error(503, "The server is shutting down."));
    }
  }
  if (ended_ == choices_.size()) complete();
}

void Generation::account(size_t index, const TokenEvent& event) {
  // The choices of one prompt after its first find what that one computed; it alone tells what the
  // cache held before.
  if (index % static_cast<size_t>(plan_.sampling.n) == 0) {
    usage_.cached_tokens += event.cached_tokens;
  }
  admission_->used(event.output_tokens);
  sink_->record().sequence_ended(variant(), event, choices_[index]->last_token != TimePoint{});
}

void Generation::begin_choice(size_t index) {
  Choice& choice = *choices_[index];
  if (choice.begun) return;
  choice.begun = true;
  const PromptTokens& prompt = prompt_of(index);
  sink_->begin_choice(static_cast<int32_t>(index), echo_of(choice, prompt), prompt.ids);
}

Piece Generation::echo_of(const Choice& choice, const PromptTokens& prompt) const {
  Piece echo;
  if (!plan_.echo) return echo;
  echo.text = prompt.text;
  if (plan_.top_logprobs >= 0) {
    echo.tokens = prompt_tokens(plan_.model.text->tokenizer, prompt.ids, prompt.text_begin,
                                prompt.text_end, choice.prompt_logprobs);
  }
  return echo;
}

void Generation::send_piece(size_t index, TimePoint at, bool at_end) {
  Choice& choice = *choices_[index];
  if (!plan_.sampling.stream) {
    choice.answer.append(choice.stream.take());
    return;
  }
  begin_choice(index);
  // Whoever asked for ids gets each at once, also of a token that completes no character.
  if (!at_end && !choice.stream.has_text() && !plan_.sampling.return_token_ids) return;
  const Piece piece = choice.stream.take();
  if (piece.text.empty() && piece.tokens.empty() &&
      (piece.ids.empty() || !plan_.sampling.return_token_ids)) {
    return;
  }
  sink_->piece(static_cast<int32_t>(index), piece, at);
}

void Generation::close_choice(size_t index, const char* reason) {
  Choice& choice = *choices_[index];
  choice.closed = true;
  choice.finish_reason = reason;
  usage_.completion_tokens += choice.stream.tokens();
  if (plan_.sampling.stream) sink_->end_choice(static_cast<int32_t>(index), reason);
}

void Generation::complete() {
  over_ = true;
  admission_.reset();  // before the client hears of it and sends the next
  RequestRecord& record = sink_->record();
  record.prompt_tokens = usage_.prompt_tokens;
  record.cached_tokens = usage_.cached_tokens;
  record.output_tokens = usage_.completion_tokens;
  record.finish = finish_reasons();
  if (plan_.sampling.stream) return sink_->end_stream(usage_);
  std::vector<WholeChoice> whole(choices_.size());
  for (size_t i = 0; i < choices_.size(); ++i) {
    const PromptTokens& prompt = prompt_of(i);
    whole[i].piece = echo_of(*choices_[i], prompt);
    whole[i].piece.append(std::move(choices_[i]->answer));
    whole[i].finish_reason = choices_[i]->finish_reason;
    whole[i].prompt_ids = &prompt.ids;
  }
  sink_->whole(whole, usage_);
}

void Generation::fail(const ApiError& error) {
  over_ = true;
  cancel_rest();
  RequestRecord& record = sink_->record();
  record.prompt_tokens = usage_.prompt_tokens;
  record.finish = "error";
  sink_->fail(error);
}

void Generation::client_gone() {
  if (over_) return;
  over_ = true;
  cancel_rest();
  RequestRecord& record = sink_->record();
  record.prompt_tokens = usage_.prompt_tokens;
  record.output_tokens = 0;
  for (const auto& choice : choices_) record.output_tokens += choice->stream.tokens();
  record.finish = "cancelled";
  sink_->client_gone();
}

void Generation::deadline_passed() {
  if (!over_) fail(api_error({Code::kDeadlineExceeded, "The request's deadline passed."}));
}

void Generation::cancel_rest() {
  for (size_t i = 0; i < submitted_; ++i) {
    if (!choices_[i]->ended) serving_.router->cancel(choices_[i]->ticket);
  }
}

std::string Generation::finish_reasons() const {
  std::string reasons;
  for (const auto& choice : choices_) {
    const std::string reason = choice->finish_reason;
    if (("," + reasons + ",").find("," + reason + ",") != std::string::npos) continue;
    reasons += (reasons.empty() ? "" : ",") + reason;
  }
  return reasons;
}

}  // namespace deltad
