#include "server/generation/tokenization.h"

#include <fmt/core.h>

#include "server/generation/generation_plan.h"

namespace deltad {

ApiError tokenize(const Serving& serving, const Caller& caller, const TokenizeRequest& request,
                  TokenizeAnswer* answer) {
  const bool is_chat = !request.chat.messages.is_null();
  if (is_chat && request.prompt)
    return invalid_value("messages", "give 'prompt' or 'messages', not both.");
  if (!is_chat && !request.prompt) return missing_parameter("prompt");
  ModelHandle model;
  RETURN_IF_API_ERROR(resolve_model(serving, caller, request.model, &model));

  std::string rendered;
  if (is_chat) {
    RETURN_IF_API_ERROR(check_chat_prompt(request.chat));
    RETURN_IF_API_ERROR(render_chat(request.chat, *model.text, unix_now(), &rendered));
  }
  const Tokenizer& tokenizer = *model.text->tokenizer;
  EncodeOptions options;
  options.add_special = request.add_special_tokens.value_or(!is_chat);
  answer->tokens = tokenizer.encode(is_chat ? rendered : *request.prompt, options);
  if (request.return_token_strs)
    for (const int32_t id : answer->tokens) answer->token_strs.push_back(tokenizer.token_text(id));
  return {};
}

ApiError detokenize(const Serving& serving, const Caller& caller, const std::string& name,
                    const std::vector<int32_t>& tokens, std::string* text) {
  ModelHandle model;
  RETURN_IF_API_ERROR(resolve_model(serving, caller, name, &model));
  const Tokenizer& tokenizer = *model.text->tokenizer;
  for (const int32_t id : tokens)
    if (id < 0 || id >= tokenizer.vocab_size())
      return invalid_value("tokens", fmt::format("token ids go from 0 to {} for this model.",
                                                 tokenizer.vocab_size() - 1));
  *text = tokenizer.decode(tokens, false);
  return {};
}

}  // namespace deltad
