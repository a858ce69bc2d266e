#include "server/openai/cors.h"

#include <algorithm>
#include <string_view>

#include "base/ascii.h"

namespace deltad {
namespace {

constexpr std::string_view kUsualHeaders = "Authorization, Content-Type, X-Request-Id";
constexpr size_t kLongestHeaderList = 1024;

// A list of header names, fit to be sent back.
bool is_header_list(std::string_view text) {
  return !text.empty() && text.size() <= kLongestHeaderList &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return is_ascii_alphanumeric(c) || c == '-' || c == '_' || c == ',' || c == ' ';
         });
}

}  // namespace

HttpHeaders cors_headers(const std::vector<std::string>& origins, const HttpRequest& request) {
  const auto allowed = [&origins](const std::string& origin) {
    return std::find(origins.begin(), origins.end(), origin) != origins.end();
  };
  HttpHeaders headers;
  if (allowed("*")) {
    headers.emplace_back("Access-Control-Allow-Origin", "*");
  } else {
    headers.emplace_back("Vary", "Origin");
    const std::string* origin = request.header("origin");
    if (origin == nullptr || !allowed(*origin)) return headers;
    headers.emplace_back("Access-Control-Allow-Origin", *origin);
  }
  headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  return headers;
}

HttpResponse preflight(const std::vector<std::string>& origins, const HttpRequest& request,
                       const std::string& allow) {
  HttpResponse response;
  response.status = 204;
  response.headers = cors_headers(origins, request);
  response.headers.emplace_back("Allow", allow);
  response.headers.emplace_back("Access-Control-Allow-Methods", allow);
  // "*" would not cover Authorization.
  const std::string* wanted = request.header("access-control-request-headers");
  response.headers.emplace_back(
      "Access-Control-Allow-Headers",
      wanted != nullptr && is_header_list(*wanted) ? *wanted : std::string(kUsualHeaders));
  response.headers.emplace_back("Access-Control-Max-Age", "86400");
  return response;
}

}  // namespace deltad
