#include "loadgen/exchange.h"

#include <fmt/core.h>

#include <utility>

#include "client/error_message.h"

namespace deltad::loadgen {
namespace {

constexpr size_t kMostErrorBody = 64 << 10;

}  // namespace

Exchange::Exchange(RequestRecord record, AnswerRules rules, simdjson::dom::parser& parser)
    : record_(std::move(record)), rules_(rules), parser_(parser), reader_(rules, parser) {}

bool Exchange::push(std::string_view bytes, TimePoint now) {
  const Status http = response_.push(bytes, &body_);
  if (response_.head_done() && response_.status() == 200) {
    const Status read = reader_.push(body_, now);
    body_.clear();
    if (!read.ok()) return take(read, now);
  } else if (body_.size() > kMostErrorBody) {
    return take(invalid_argument("an error's body has more than 64 KiB"), now);
  }
  if (!http.ok()) return take(http, now);
  return response_.complete() && complete(now);
}

bool Exchange::closed(TimePoint now) {
  const Status http = response_.closed();
  if (!http.ok()) return fail(Outcome::kLost, "lost", http.message(), now);
  return complete(now);
}

bool Exchange::take(const Status& status, TimePoint now) {
  if (!reader_.answer().server_error.empty()) {
    return fail(Outcome::kServerError, "error in answer", status.message(), now);
  }
  return fail(Outcome::kMalformed, "malformed", status.message(), now);
}

bool Exchange::complete(TimePoint now) {
  const int status = response_.status();
  if (status != 200) {
    const Outcome outcome =
        status == 429 || status == 503 ? Outcome::kRefused : Outcome::kHttpError;
    return fail(outcome, fmt::format("{}", status), client::error_message(parser_, body_), now);
  }
  const Status read = reader_.finish(now);
  if (!read.ok()) return take(read, now);
  const Answer& answer = reader_.answer();
  record_.streamed = rules_.streamed;
  record_.first = answer.first.value_or(answer.end);
  record_.end = answer.end;
  record_.gaps = answer.gaps;
  record_.prompt_tokens = answer.prompt_tokens;
  record_.completion_tokens = answer.completion_tokens;
  return true;
}

bool Exchange::fail(Outcome outcome, std::string error, std::string detail, TimePoint now) {
  record_.outcome = outcome;
  record_.error = std::move(error);
  record_.detail = std::move(detail);
  record_.end = now;
  return true;
}

}  // namespace deltad::loadgen
