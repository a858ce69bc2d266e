// Typed reads of request fields. Each gives a 400 that names the parameter if the value has another
// type or lies outside its range. Tables of fields let an endpoint's parameters be listed one a
// line. Any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/openai/errors.h"

namespace deltad {

ApiError read_bool(const Json& value, const std::string& param, bool* out);
// A number without a fraction (16.0 counts as 16), from low to high.
ApiError read_int(const Json& value, const std::string& param, int64_t low, int64_t high,
                  int64_t* out);
ApiError read_int32(const Json& value, const std::string& param, int32_t low, int32_t high,
                    int32_t* out);
ApiError read_number(const Json& value, const std::string& param, double low, double high,
                     double* out);
// As read_number, but low itself is not allowed.
ApiError read_number_above(const Json& value, const std::string& param, double low, double high,
                           double* out);
ApiError read_string(const Json& value, const std::string& param, std::string* out);
// A list of token ids ≥ 0; at most `most` of them.
ApiError read_token_ids(const Json& value, const std::string& param, size_t most,
                        std::vector<int32_t>* out);

template <typename T>
using FieldTable =
    std::unordered_map<std::string_view, ApiError (*)(const Json&, const std::string&, T*)>;

enum class FieldFound { kNo, kYes };

// Reads the field if the table has it; null counts as absent.
template <typename T>
ApiError read_field(const FieldTable<T>& table, const std::string& name, const Json& value, T* out,
                    FieldFound* found) {
  const auto it = table.find(name);
  if (it == table.end()) return {};
  *found = FieldFound::kYes;
  return value.is_null() ? ApiError() : it->second(value, name, out);
}

}  // namespace deltad
