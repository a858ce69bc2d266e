// POST /tokenize and /detokenize, as vLLM has them: {model, prompt | messages, add_special_tokens,
// return_token_strs} → {count, max_model_len, tokens, token_strs}, and {model, tokens} → {prompt}.
// Pure.
#pragma once

#include <string_view>

#include "server/access/caller.h"
#include "server/openai/errors.h"
#include "server/serving.h"

namespace deltad {

ApiError tokenize(const Serving& serving, const Caller& caller, std::string_view body, Json* out);
ApiError detokenize(const Serving& serving, const Caller& caller, std::string_view body, Json* out);

}  // namespace deltad
