#include "server/openai/routes.h"

#include "server/request_target.h"

namespace deltad {
namespace {

constexpr std::string_view kGet = "GET, HEAD, OPTIONS";
constexpr std::string_view kPost = "POST, OPTIONS";
constexpr std::string_view kModelPrefix = "/v1/models/";

struct Known {
  std::string_view path;
  Route route;
  std::string_view allow;
};

constexpr Known kKnown[] = {
    {"/v1/chat/completions", Route::kChat, kPost},
    {"/v1/completions", Route::kCompletions, kPost},
    {"/v1/models", Route::kModels, kGet},
    {"/tokenize", Route::kTokenize, kPost},
    {"/detokenize", Route::kDetokenize, kPost},
    {"/health", Route::kHealth, kGet},
    {"/ready", Route::kReady, kGet},
    {"/metrics", Route::kMetrics, kGet},
};

}  // namespace

RouteMatch match_route(std::string_view target) {
  const std::string_view path = path_of(target);
  for (const Known& known : kKnown) {
    if (path == known.path) return {known.route, known.allow, ""};
  }
  if (path.size() > kModelPrefix.size() && path.substr(0, kModelPrefix.size()) == kModelPrefix) {
    return {Route::kModels, kGet, percent_decoded(path.substr(kModelPrefix.size()))};
  }
  return {};
}

}  // namespace deltad
