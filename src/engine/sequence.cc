#include "engine/sequence.h"

#include <algorithm>
#include <utility>

namespace deltad {

Sequence::Sequence(RequestHandle handle_, Request request_, int32_t max_context)
    : handle(handle_),
      request(std::move(request_)),
      prompt_tokens(static_cast<int32_t>(request.prompt.size())),
      length_limit(static_cast<int32_t>(
          std::min<int64_t>(int64_t{prompt_tokens} + request.max_tokens, max_context))),
      tokens(std::move(request.prompt)),
      keys{root_key(request.variant ? request.variant->digest : "")} {
  if (!TokenCounts::needed(request.sampling)) return;
  counts.emplace();
  for (const int32_t token : tokens) counts->add_prompt(token);
}

void Sequence::extend_keys(int32_t block_tokens, bool roles_differ) {
  const auto block = static_cast<size_t>(block_tokens);
  while (keys.size() * block <= tokens.size()) {
    const auto from = (keys.size() - 1) * block;
    const int32_t beyond_prompt = static_cast<int32_t>(from + block) - prompt_tokens;
    const int32_t generated = roles_differ ? std::clamp(beyond_prompt, 0, block_tokens) : 0;
    keys.push_back(chain_key(keys.back(), std::span(tokens).subspan(from, block), generated));
  }
}

}  // namespace deltad
