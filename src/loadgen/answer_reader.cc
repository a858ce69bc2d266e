#include "loadgen/answer_reader.h"

#include <fmt/core.h>

#include <algorithm>

#include "client/error_message.h"
#include "text/json_reader.h"

namespace deltad::loadgen {
namespace {

constexpr size_t kMostBody = size_t{64} << 20;

// Whether a member is text, token ids or tool calls that somebody could see.
bool filled(const JsonReader& parent, std::string_view key) {
  const auto value = parent.find(key);
  if (!value) return false;
  if (value->is_string()) return !value->string().value().empty();
  return value->is_array() && value->array().value().size() > 0;
}

}  // namespace

AnswerReader::AnswerReader(AnswerRules rules, simdjson::dom::parser& parser)
    : rules_(rules), parser_(parser) {}

Status AnswerReader::push(std::string_view body, TimePoint now) {
  if (rules_.streamed) {
    return events_.push(body, [&](std::string_view data) { return take_event(data, now); });
  }
  if (body_.size() + body.size() > kMostBody) {
    return invalid_argument("the answer has more than 64 MiB");
  }
  body_ += body;
  return Status();
}

Status AnswerReader::finish(TimePoint now) {
  if (rules_.streamed) {
    RETURN_IF_ERROR(events_.finish());
    if (!done_) return invalid_argument("the stream ended without [DONE]");
  } else {
    answer_.end = now;
    RETURN_IF_ERROR(take_document(body_, now));
  }
  return check();
}

Status AnswerReader::take_event(std::string_view data, TimePoint now) {
  if (done_) return invalid_argument("the stream goes on after [DONE]");
  if (data == "[DONE]") {
    done_ = true;
    answer_.end = now;
    return Status();
  }
  return take_document(data, now);
}

Status AnswerReader::take_document(std::string_view text, TimePoint now) {
  ASSIGN_OR_RETURN(const simdjson::dom::element document, parse_json(parser_, text));
  const JsonReader root(document, "");
  if (root.find("error")) {
    answer_.server_error = client::error_message(parser_, std::string(text));
    return invalid_argument(answer_.server_error);
  }
  ASSIGN_OR_RETURN(const JsonReader choices, root.member("choices"));
  ASSIGN_OR_RETURN(const simdjson::dom::array list, choices.array());
  for (const simdjson::dom::element choice : list) RETURN_IF_ERROR(take_choice(choice, now));
  simdjson::dom::element usage;
  if (document["usage"].get(usage) == simdjson::SUCCESS && !usage.is_null()) {
    RETURN_IF_ERROR(take_usage(usage));
  }
  return Status();
}

Status AnswerReader::take_choice(simdjson::dom::element element, TimePoint now) {
  const JsonReader choice(element, "choices[]");
  RETURN_IF_ERROR(choice.object().status());
  const bool last = choice.find("finish_reason").has_value();
  if (finished_) return invalid_argument("a choice goes on after its finish_reason");
  finished_ = last;
  bool token = filled(choice, "text") || filled(choice, "token_ids");
  for (const char* part : {"delta", "message"}) {
    const auto content = choice.find(part);
    if (!content) continue;
    for (const char* key : {"content", "reasoning_content", "reasoning", "tool_calls"}) {
      token = token || filled(*content, key);
    }
  }
  // Tokens without any text (special ones) show at the end only.
  if (!token && !(last && !answer_.first)) return Status();
  if (!answer_.first) {
    answer_.first = now;
  } else {
    answer_.gaps.push_back(static_cast<float>(1e3 * seconds(now - *answer_.last)));
  }
  answer_.last = now;
  return Status();
}

Status AnswerReader::take_usage(simdjson::dom::element element) {
  const JsonReader usage(element, "usage");
  ASSIGN_OR_RETURN(const JsonReader prompt, usage.member("prompt_tokens"));
  ASSIGN_OR_RETURN(answer_.prompt_tokens, prompt.integer());
  ASSIGN_OR_RETURN(const JsonReader completion, usage.member("completion_tokens"));
  ASSIGN_OR_RETURN(answer_.completion_tokens, completion.integer());
  has_usage_ = true;
  return Status();
}

Status AnswerReader::check() const {
  if (!finished_) return invalid_argument("the answer has no finish_reason");
  if (!has_usage_) return invalid_argument("the answer has no usage: its tokens cannot be counted");
  const int64_t n = answer_.completion_tokens;
  if (n < 0 || answer_.prompt_tokens < 1) {
    return invalid_argument(
        fmt::format("usage counts {} prompt and {} completion tokens", answer_.prompt_tokens, n));
  }
  if (n > rules_.max_tokens || (rules_.all_tokens && n < rules_.max_tokens)) {
    return invalid_argument(fmt::format("usage counts {} completion tokens, {}{} were expected", n,
                                        rules_.all_tokens ? "" : "at most ", rules_.max_tokens));
  }
  return Status();
}

}  // namespace deltad::loadgen
