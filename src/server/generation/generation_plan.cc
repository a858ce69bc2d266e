#include "server/generation/generation_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace deltad {
namespace {

constexpr int32_t kDefaultCompletionTokens = 16;
constexpr size_t kMostSequences = 1024;  // prompts × n of one request

ApiError too_long(const std::string& param, std::string message) {
  ApiError error = invalid_value("", std::move(message));
  error.param = param;
  error.code = "context_length_exceeded";
  return error;
}

// Sets prompt.max_tokens, or says that the prompt leaves no room. open: how many tokens there are
// if the client did not say; the rest of the context bounds it.
ApiError fit(const SamplingFields& sampling, const std::string& param, int32_t context,
             int32_t open, PromptTokens* prompt) {
  const auto length = static_cast<int64_t>(prompt->ids.size());
  if (length == 0) return invalid_value(param, "the prompt must have at least one token.");
  if (length >= context) {
    return too_long(param, fmt::format("This model's maximum context length is {} tokens, but the "
                                       "prompt has {} tokens. Please shorten it.",
                                       context, length));
  }
  const int64_t room = context - length;
  if (sampling.max_tokens && *sampling.max_tokens > room) {
    return too_long(
        sampling.max_tokens_name,
        fmt::format("This model's maximum context length is {} tokens, but {} tokens "
                    "were requested: {} of the prompt and {} for the answer.",
                    context, length + *sampling.max_tokens, length, *sampling.max_tokens));
  }
  prompt->max_tokens = static_cast<int32_t>(std::min<int64_t>(
      room, sampling.max_tokens ? static_cast<int64_t>(*sampling.max_tokens) : open));
  if (sampling.min_tokens > prompt->max_tokens) {
    return invalid_value("min_tokens",
                         fmt::format("the answer can have at most {} tokens.", prompt->max_tokens));
  }
  return {};
}

ApiError resolve(const Serving& serving, const Caller& caller, const SamplingFields& sampling,
                 ModelHandle* model) {
  RETURN_IF_API_ERROR(resolve_model(serving, caller, sampling.model, model));
  return check_token_ids(sampling, model->text->tokenizer->vocab_size());
}

PromptTokens tokenize_text(const Tokenizer& tokenizer, const std::string& text, bool add_special,
                           bool echo) {
  PromptTokens prompt;
  EncodeOptions options;
  options.add_special = add_special;
  prompt.ids = tokenizer.encode(text, options);
  if (!echo) return prompt;
  prompt.text = text;
  prompt.text_end = prompt.ids.size();
  if (add_special) {
    options.add_special = false;
    const std::vector<int32_t> plain = tokenizer.encode(text, options);
    const auto at = std::search(prompt.ids.begin(), prompt.ids.end(), plain.begin(), plain.end());
    if (at != prompt.ids.end()) {
      prompt.text_begin = static_cast<size_t>(at - prompt.ids.begin());
      prompt.text_end = prompt.text_begin + plain.size();
    }
  }
  return prompt;
}

}  // namespace

ApiError resolve_model(const Serving& serving, const Caller& caller, const std::string& name,
                       ModelHandle* model) {
  const Status allowed = caller.check_model(name.empty() ? serving.router->base_name() : name);
  if (!allowed.ok()) {
    ApiError error = api_error(allowed);
    error.param = "model";
    return error;
  }
  Result<ModelHandle> found = serving.router->resolve(name);
  if (!found.ok()) {
    const bool hide = found.status().code() == Code::kNotFound && !caller.may_use_all();
    return api_error(hide ? not_found("This model does not exist.") : found.status());
  }
  *model = std::move(*found);
  return {};
}

ApiError plan_chat(const Serving& serving, const Caller& caller, ChatRequest request,
                   GenerationPlan* plan) {
  plan->chat = true;
  RETURN_IF_API_ERROR(resolve(serving, caller, request.sampling, &plan->model));
  const TextAssets& text = *plan->model.text;
  std::string rendered;
  RETURN_IF_API_ERROR(render_chat(request.prompt, text, unix_now(), &rendered));
  PromptTokens prompt = tokenize_text(*text.tokenizer, rendered,
                                      request.sampling.add_special_tokens.value_or(false), false);
  const int32_t context = serving.engine->max_context();
  RETURN_IF_API_ERROR(fit(request.sampling, "messages", context, context, &prompt));
  plan->prompts.push_back(std::move(prompt));
  plan->top_logprobs = request.logprobs ? request.top_logprobs : -1;
  plan->sampling = std::move(request.sampling);
  return {};
}

ApiError plan_completion(const Serving& serving, const Caller& caller, CompletionRequest request,
                         GenerationPlan* plan) {
  RETURN_IF_API_ERROR(resolve(serving, caller, request.sampling, &plan->model));
  if (request.prompts.size() * static_cast<size_t>(request.sampling.n) > kMostSequences) {
    return invalid_value("n", fmt::format("prompts × n may be at most {}.", kMostSequences));
  }
  const Tokenizer& tokenizer = *plan->model.text->tokenizer;
  const int32_t vocab = tokenizer.vocab_size();
  const int32_t context = serving.engine->max_context();
  for (CompletionPrompt& given : request.prompts) {
    PromptTokens prompt;
    if (const auto* text = std::get_if<std::string>(&given)) {
      prompt = tokenize_text(tokenizer, *text, request.sampling.add_special_tokens.value_or(true),
                             request.echo);
    } else {
      prompt.ids = std::move(std::get<std::vector<int32_t>>(given));
      for (const int32_t id : prompt.ids) {
        if (id >= vocab) {
          return invalid_value("prompt",
                               fmt::format("token ids go from 0 to {} for this model.", vocab - 1));
        }
      }
      prompt.text_end = prompt.ids.size();
      if (request.echo) prompt.text = tokenizer.decode(prompt.ids, false);
    }
    RETURN_IF_API_ERROR(
        fit(request.sampling, "prompt", context, kDefaultCompletionTokens, &prompt));
    plan->prompts.push_back(std::move(prompt));
  }
  plan->top_logprobs = request.logprobs.value_or(-1);
  plan->echo = request.echo;
  plan->sampling = std::move(request.sampling);
  return {};
}

}  // namespace deltad
