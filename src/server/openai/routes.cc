#include "server/openai/routes.h"

#include "server/request_target.h"

namespace deltad {
namespace {

constexpr std::string_view kGet = "GET, HEAD, OPTIONS";
constexpr std::string_view kPost = "POST, OPTIONS";
constexpr std::string_view kModel = "{model}";

constexpr KnownRoute kKnown[] = {
    {"/v1/chat/completions", Route::kChat, kPost, Need::kInference},
    {"/v1/completions", Route::kCompletions, kPost, Need::kInference},
    {"/v1/models", Route::kModels, kGet, Need::kInference},
    {"/v1/models/{model}", Route::kModels, kGet, Need::kInference},
    {"/tokenize", Route::kTokenize, kPost, Need::kInference},
    {"/detokenize", Route::kDetokenize, kPost, Need::kInference},
    {"/health", Route::kHealth, kGet, Need::kNothing},
    {"/ready", Route::kReady, kGet, Need::kNothing},
    {"/metrics", Route::kMetrics, kGet, Need::kNothing},
};

}  // namespace

std::span<const KnownRoute> known_routes() { return kKnown; }

RouteMatch match_route(std::string_view target) {
  const std::string_view path = path_of(target);
  for (const KnownRoute& known : kKnown) {
    if (!known.path.ends_with(kModel)) {
      if (path == known.path) return {known.route, known.need, known.allow, ""};
      continue;
    }
    const std::string_view prefix = known.path.substr(0, known.path.size() - kModel.size());
    if (path.size() > prefix.size() && path.starts_with(prefix))
      return {known.route, known.need, known.allow, percent_decoded(path.substr(prefix.size()))};
  }
  return {};
}

}  // namespace deltad
