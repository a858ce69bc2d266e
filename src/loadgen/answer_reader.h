// AnswerReader: the body of a 200 answer of /v1/chat/completions or /v1/completions, streamed or
// not: checks that it is whole and takes its tokens' times and counts. One thread.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "loadgen/sse_parser.h"

namespace deltad::loadgen {

struct AnswerRules {
  bool streamed = false;
  int64_t max_tokens = 0;   // more are an error
  bool all_tokens = false;  // fewer are an error, too (ignore_eos)
};

struct Answer {
  std::optional<TimePoint> first, last;  // token
  std::vector<float> gaps;               // between tokens' arrivals, ms
  TimePoint end;
  int64_t prompt_tokens = 0, completion_tokens = 0;
  std::string server_error;  // the server's own message, where it sent one in place of an answer
};

class AnswerReader {
 public:
  // parser: one for all readers of a thread; outlives this.
  AnswerReader(AnswerRules rules, simdjson::dom::parser& parser);

  Status push(std::string_view body, TimePoint now);
  Status finish(TimePoint now);  // the body has ended
  const Answer& answer() const { return answer_; }

 private:
  Status take_event(std::string_view data, TimePoint now);
  Status take_document(std::string_view text, TimePoint now);
  Status take_choice(simdjson::dom::element choice, TimePoint now);
  Status take_usage(simdjson::dom::element usage);
  Status check() const;

  const AnswerRules rules_;
  simdjson::dom::parser& parser_;
  SseParser events_;
  std::string body_;  // not streamed: all of it
  bool done_ = false, finished_ = false, has_usage_ = false;
  Answer answer_;
};

}  // namespace deltad::loadgen
