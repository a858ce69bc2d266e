// Request: what the engine is asked to do, and the events it answers with. Plain data, made by
// router/server.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "delta/variant.h"

namespace deltad {

struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy
  float top_p = 1.0f;        // (0, 1]
  float min_p = 0.0f;        // [0, 1]
  int32_t top_k = 0;         // 0: all
  uint64_t seed = 0;
  float repetition_penalty = 1.0f;  // > 0; over prompt and output
  float frequency_penalty = 0.0f;   // over the output, as OpenAI
  float presence_penalty = 0.0f;
  std::vector<std::pair<int32_t, float>> logit_bias;
};

struct TokenLogprob {
  int32_t id;
  float logprob;
};

enum class FinishReason { kNone, kStop, kLength, kCancelled, kError };
const char* finish_reason_name(FinishReason reason);

// One event of one request, delivered on the engine's thread in order; the sink must return at
// once.
struct TokenEvent {
  enum class Kind { kPromptLogprobs, kToken, kFinished };
  Kind kind = Kind::kToken;
  int32_t token = -1;  // kToken
  float logprob = 0;   // kToken, if asked for: of the unchanged distribution's log-softmax
  std::vector<TokenLogprob> top;  // kToken, if asked for: the top_logprobs most likely, best first
  std::vector<TokenLogprob> prompt;  // kPromptLogprobs: of prompt[1..] given what is before
  std::vector<std::vector<TokenLogprob>> prompt_top;
  FinishReason reason =
      FinishReason::kNone;  // kFinished. kStop: an end or stop token, which is not delivered as
                            // kToken unless Request::deliver_stop_token
  int32_t stop_token = -1;  // kFinished by kStop: which
  Status status;            // kFinished by kError
  int32_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;  // kFinished
  // kFinished: when it began and ended to wait for its variant, got its place in a step and had its
  // first token; zero if it never got there.
  TimePoint parked{}, unparked{}, admitted{}, first_token{};
};

// The least urgent class. Its requests have the engine to themselves while nobody else does; else
// they are computed as far as a step takes little longer for it (EngineOptions::background_share).
constexpr int32_t kBackgroundPriority = std::numeric_limits<int32_t>::max();

struct Request {
  std::string id;               // unique among running requests; for logs
  VariantRef variant;           // null: base
  std::vector<int32_t> prompt;  // at least one token
  SamplingParams sampling;
  // Part of an API request of which a sequence was admitted before: a limit on requests has
  // counted it.
  bool follows = false;
  int32_t choice = 0;  // index among the n choices of an API request: part of the Philox counter
  int32_t max_tokens = 16;  // 0: only prompt logprobs
  int32_t min_tokens = 0;   // end and stop tokens are not sampled before
  std::vector<int32_t>
      stop_ids;  // end tokens of the model (empty with ignore_eos) and stop_token_ids
  bool deliver_stop_token = false;
  int32_t logprobs = -1;         // −1: none; else how many top entries
  int32_t prompt_logprobs = -1;  // −1: none
  int32_t priority = 0;          // lower goes first
  TimePoint received{};
  TimePoint parked{}, unparked{};  // the router's: from when to when it waited for its variant
  TimePoint deadline = TimePoint::max();
  std::function<void(const TokenEvent&)> on_event;
};

using RequestHandle = uint64_t;  // given by submit(); never reused

}  // namespace deltad
