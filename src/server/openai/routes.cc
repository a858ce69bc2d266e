#include "server/openai/routes.h"

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

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
        hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

RouteMatch match_route(std::string_view target) {
  const std::string_view path = target.substr(0, target.find_first_of("?#"));
  for (const Known& known : kKnown) {
    if (path == known.path) return {known.route, known.allow, ""};
  }
  if (path.size() > kModelPrefix.size() && path.substr(0, kModelPrefix.size()) == kModelPrefix) {
    return {Route::kModels, kGet, percent_decoded(path.substr(kModelPrefix.size()))};
  }
  return {};
}

bool method_allowed(std::string_view method, std::string_view allow) {
  while (!allow.empty()) {
    const size_t end = allow.find(", ");
    if (allow.substr(0, end) == method) return true;
    if (end == std::string_view::npos) break;
    allow.remove_prefix(end + 2);
  }
  return false;
}

}  // namespace deltad
