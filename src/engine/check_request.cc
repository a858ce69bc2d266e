#include "engine/check_request.h"

#include <fmt/core.h>

#include <cmath>

namespace deltad {
namespace {

Status check_sampling(const SamplingParams& p) {
  const auto bad = [](const char* name, auto value, const char* expected) {
    return invalid_argument(fmt::format("{} is {}, expected {}", name, value, expected));
  };
  // Written so that a NaN fails too.
  if (!(p.temperature >= 0 && std::isfinite(p.temperature)))
    return bad("temperature", p.temperature, "a number ≥ 0");
  if (!(p.top_p > 0 && p.top_p <= 1)) return bad("top_p", p.top_p, "more than 0 and at most 1");
  if (!(p.min_p >= 0 && p.min_p <= 1)) return bad("min_p", p.min_p, "0 to 1");
  if (p.top_k < 0) return bad("top_k", p.top_k, "0 (all) or more");
  if (!(p.repetition_penalty > 0 && std::isfinite(p.repetition_penalty)))
    return bad("repetition_penalty", p.repetition_penalty, "a number > 0");
  if (!std::isfinite(p.frequency_penalty))
    return bad("frequency_penalty", p.frequency_penalty, "a finite number");
  if (!std::isfinite(p.presence_penalty))
    return bad("presence_penalty", p.presence_penalty, "a finite number");
  for (const auto& [id, bias] : p.logit_bias)
    if (!std::isfinite(bias)) return bad("logit_bias", bias, "a finite number");
  return {};
}

}  // namespace

Status check_request(const Request& request, int32_t max_context) {
  if (!request.on_event) return invalid_argument("a request needs on_event");
  const auto length = static_cast<int64_t>(request.prompt.size());
  if (length == 0) return invalid_argument("the prompt is empty, expected at least one token");
  if (length + 1 > max_context)
    return invalid_argument(
        fmt::format("the prompt has {} tokens; the context is {} tokens, of which at least one is "
                    "for the answer",
                    length, max_context));
  if (request.max_tokens < 0)
    return invalid_argument(fmt::format("max_tokens is {}, expected ≥ 0", request.max_tokens));
  if (request.min_tokens < 0 || request.min_tokens > request.max_tokens)
    return invalid_argument(fmt::format("min_tokens is {}, expected 0 to max_tokens ({})",
                                        request.min_tokens, request.max_tokens));
  if (request.logprobs < -1 || request.prompt_logprobs < -1)
    return invalid_argument("logprobs and prompt_logprobs are −1 (none) or a number ≥ 0");
  return check_sampling(request.sampling);
}

Status check_tokens(const Request& request, int64_t base_vocab) {
  const Variant* variant = request.variant.get();
  if (variant != nullptr && variant->weights == nullptr)
    return invalid_argument(fmt::format("variant {} has no weights", variant->name));
  const int64_t vocab = variant != nullptr && variant->vocab > 0 ? variant->vocab : base_vocab;
  for (const int32_t id : request.prompt)
    if (id < 0 || id >= vocab)
      return invalid_argument(
          fmt::format("the prompt holds token {}, expected 0 to {}", id, vocab - 1));
  for (const auto& [id, bias] : request.sampling.logit_bias)
    if (id < 0 || id >= vocab)
      return invalid_argument(
          fmt::format("logit_bias names token {}, expected 0 to {}", id, vocab - 1));
  return {};
}

}  // namespace deltad
