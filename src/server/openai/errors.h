// ApiError: why a request is refused, in OpenAI's terms, and the one mapping of Status to HTTP.
// Messages never repeat what the client sent, except the names of parameters. Any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace deltad {

using Json = nlohmann::ordered_json;

struct [[nodiscard]] ApiError {
  int status = 0;  // 0: no error
  std::string message;
  std::string type = "invalid_request_error";
  std::optional<std::string> param;
  std::optional<std::string> code;
  int retry_after = 0;  // seconds; 0: unknown

  explicit operator bool() const { return status != 0; }
};

// 400s.
ApiError invalid_value(std::string param, std::string message);
ApiError wrong_type(std::string param, std::string_view expected, const Json& got);
ApiError missing_parameter(std::string param);
ApiError unsupported_parameter(std::string param, std::string_view what);
ApiError unknown_parameter(std::string_view name, const std::string& param);

ApiError api_error(int status, std::string message);  // type and code follow from the status
ApiError api_error(const Status& status);

Json error_json(const ApiError& error);  // {"error": {"message", "type", "param", "code"}}
// Compact; what is not UTF-8 becomes U+FFFD.
std::string to_text(const Json& json);

}  // namespace deltad

#define RETURN_IF_API_ERROR(expr)                          \
  do {                                                     \
    if (::deltad::ApiError error_ = (expr)) return error_; \
  } while (0)
