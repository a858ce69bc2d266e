#include "server/openai/errors.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace deltad {
namespace {

constexpr size_t kLongestName = 64;  // of an unknown parameter, in messages

ApiError bad_request(std::string param, std::string code, std::string message) {
  ApiError error;
  error.status = 400;
  error.message = std::move(message);
  if (!param.empty()) error.param = std::move(param);
  error.code = std::move(code);
  return error;
}

const char* with_article(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::number_float:
      return "a decimal";
    default:
      return "an integer";
  }
}

int http_status(Code code) {
  switch (code) {
    case Code::kOk:
      return 200;
    case Code::kInvalidArgument:
    case Code::kUnimplemented:
      return 400;
    case Code::kUnauthenticated:
      return 401;
    case Code::kPermissionDenied:
      return 403;
    case Code::kNotFound:
      return 404;
    case Code::kConflict:
      return 409;
    case Code::kResourceExhausted:
      return 429;
    case Code::kUnavailable:
    case Code::kCancelled:
      return 503;
    case Code::kDeadlineExceeded:
      return 504;
    case Code::kInternal:
      return 500;
  }
  return 500;
}

}  // namespace

ApiError invalid_value(std::string param, std::string message) {
  std::string text = param.empty() ? std::move(message)
                                   : fmt::format("Invalid value for '{}': {}", param, message);
  return bad_request(std::move(param), "invalid_value", std::move(text));
}

ApiError wrong_type(std::string param, std::string_view expected, const Json& got) {
  std::string text = fmt::format("Invalid type for '{}': expected {}, but got {} instead.", param,
                                 expected, with_article(got));
  return bad_request(std::move(param), "invalid_type", std::move(text));
}

ApiError missing_parameter(std::string param) {
  std::string text = fmt::format("Missing required parameter: '{}'.", param);
  return bad_request(std::move(param), "missing_required_parameter", std::move(text));
}

ApiError unsupported_parameter(std::string param, std::string_view what) {
  std::string text = fmt::format("Unsupported parameter: '{}'. {}", param, what);
  return bad_request(std::move(param), "unsupported_parameter", std::move(text));
}

ApiError unknown_parameter(std::string_view name, const std::string& param) {
  std::string shown(name.substr(0, kLongestName));
  if (name.size() > kLongestName) shown += "…";
  return bad_request(param.substr(0, 2 * kLongestName), "unknown_parameter",
                     fmt::format("Unrecognized request argument supplied: {}", shown));
}

ApiError api_error(int status, std::string message) {
  ApiError error;
  error.status = status;
  error.message = std::move(message);
  if (status == 401) {
    error.type = "authentication_error";
    error.code = "invalid_api_key";
  } else if (status == 403) {
    error.type = "permission_error";
    error.code = "permission_denied";
  } else if (status == 404) {
    error.type = "not_found_error";
  } else if (status == 409) {
    error.code = "conflict";
  } else if (status == 429) {
    error.type = "rate_limit_error";
    error.code = "rate_limit_exceeded";
  } else if (status == 503) {
    error.type = "service_unavailable_error";
    error.code = "service_unavailable";
  } else if (status >= 500) {
    error.type = "server_error";
  }
  return error;
}

ApiError api_error(const Status& status) {
  ApiError error = api_error(http_status(status.code()), status.message());
  error.retry_after = status.retry_after();
  if (status.code() == Code::kNotFound) {
    error.type = "invalid_request_error";
    error.param = "model";
    error.code = "model_not_found";
  }
  return error;
}

Json error_json(const ApiError& error) {
  Json inner;
  inner["message"] = error.message;
  inner["type"] = error.type;
  inner["param"] = error.param ? Json(*error.param) : Json();
  inner["code"] = error.code ? Json(*error.code) : Json();
  Json outer;
  outer["error"] = std::move(inner);
  return outer;
}

std::string to_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace deltad
