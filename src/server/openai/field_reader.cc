#include "server/openai/field_reader.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace deltad {
namespace {

std::string number_text(double value) {
  return std::isinf(value) ? "infinity" : fmt::format("{:g}", value);
}

bool whole_number(const Json& value, int64_t* out, bool* fits) {
  *fits = true;
  if (value.is_number_unsigned()) {
    const auto got = value.get<uint64_t>();
    *fits = got <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    *out = static_cast<int64_t>(got);
    return true;
  }
  if (value.is_number_integer()) {
    *out = value.get<int64_t>();
    return true;
  }
  if (!value.is_number_float()) return false;
  const double got = value.get<double>();
  if (!std::isfinite(got) || got != std::floor(got)) return false;
  *fits = std::abs(got) < 9e15;  // beyond, a double does not tell whole numbers apart
  if (*fits) *out = static_cast<int64_t>(got);
  return true;
}

}  // namespace

ApiError read_bool(const Json& value, const std::string& param, bool* out) {
  if (!value.is_boolean()) return wrong_type(param, "a boolean", value);
  *out = value.get<bool>();
  return {};
}

ApiError read_int(const Json& value, const std::string& param, int64_t low, int64_t high,
                  int64_t* out) {
  int64_t got = 0;
  bool fits = false;
  if (!whole_number(value, &got, &fits)) return wrong_type(param, "an integer", value);
  if (!fits || got < low || got > high) {
    return invalid_value(param, fmt::format("expected an integer from {} to {}.", low, high));
  }
  *out = got;
  return {};
}

ApiError read_int32(const Json& value, const std::string& param, int32_t low, int32_t high,
                    int32_t* out) {
  int64_t got = 0;
  RETURN_IF_API_ERROR(read_int(value, param, low, high, &got));
  *out = static_cast<int32_t>(got);
  return {};
}

ApiError read_number(const Json& value, const std::string& param, double low, double high,
                     double* out) {
  if (!value.is_number()) return wrong_type(param, "a number", value);
  const double got = value.get<double>();
  if (!(got >= low && got <= high) || std::isinf(got)) {
    return invalid_value(param, fmt::format("expected a number from {} to {}.", number_text(low),
                                            number_text(high)));
  }
  *out = got;
  return {};
}

ApiError read_number_above(const Json& value, const std::string& param, double low, double high,
                           double* out) {
  if (!value.is_number()) return wrong_type(param, "a number", value);
  const double got = value.get<double>();
  if (!(got > low && got <= high) || std::isinf(got)) {
    return invalid_value(param, fmt::format("expected a number above {} and at most {}.",
                                            number_text(low), number_text(high)));
  }
  *out = got;
  return {};
}

ApiError read_string(const Json& value, const std::string& param, std::string* out) {
  if (!value.is_string()) return wrong_type(param, "a string", value);
  *out = value.get_ref<const std::string&>();
  return {};
}

ApiError read_token_ids(const Json& value, const std::string& param, size_t most,
                        std::vector<int32_t>* out) {
  if (!value.is_array()) return wrong_type(param, "an array of token ids", value);
  if (value.size() > most) {
    return invalid_value(param, fmt::format("expected at most {} token ids.", most));
  }
  out->clear();
  out->reserve(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
    int32_t id = 0;
    if (const auto* plain = value[i].get_ptr<const Json::number_unsigned_t*>();
        plain != nullptr && *plain <= kMost) {
      id = static_cast<int32_t>(*plain);  // without making the element's name
    } else {
      RETURN_IF_API_ERROR(read_int32(value[i], fmt::format("{}[{}]", param, i), 0, kMost, &id));
    }
    out->push_back(id);
  }
  return {};
}

}  // namespace deltad
