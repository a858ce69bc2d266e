#include "server/openai/generation_reply.h"

#include <nlohmann/json.hpp>

#include "server/openai/ids.h"

namespace deltad {
namespace {

std::unique_ptr<AnswerFormat> format_of(const GenerationPlan& plan) {
  AnswerHead head;
  head.id = random_id(plan.chat ? "chatcmpl-" : "cmpl-");
  head.model = plan.model.name;
  head.created = unix_now();
  head.logprobs = plan.top_logprobs >= 0;
  head.token_ids = plan.sampling.return_token_ids;
  return plan.chat ? make_chat_format(std::move(head)) : make_completion_format(std::move(head));
}

}  // namespace

GenerationReply::GenerationReply(const GenerationPlan& plan, std::unique_ptr<Reply> reply)
    : reply_(std::move(reply)),
      include_usage_(plan.sampling.include_usage),
      format_(format_of(plan)) {}

void GenerationReply::begin_choice(int32_t index, const Piece& echo,
                                   const std::vector<int32_t>& prompt_ids) {
  if (!reply_->streaming()) reply_->begin_events();
  const Json first = format_->begin(index, echo, prompt_ids);
  if (!first.is_null()) reply_->event(first);
}

void GenerationReply::piece(int32_t index, const Piece& piece, TimePoint at) {
  reply_->event(format_->chunk(index, piece), [&metrics = reply_->metrics(), at] {
    metrics.path(PathPart::kWrite, seconds(Clock::real().now() - at));
  });
}

void GenerationReply::end_choice(int32_t index, const char* finish_reason) {
  reply_->event(format_->end(index, finish_reason));
}

void GenerationReply::end_stream(const Usage& usage) {
  if (include_usage_) reply_->event(format_->usage_chunk(usage));
  reply_->end_events();
}

void GenerationReply::whole(const std::vector<WholeChoice>& choices, const Usage& usage) {
  reply_->json(200, format_->whole(choices, usage));
}

void GenerationReply::fail(const ApiError& error) {
  if (reply_->streaming())
    reply_->end_events_with(error);
  else
    reply_->error(error);
}

}  // namespace deltad
