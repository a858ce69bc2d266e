#include "server/admin/fields.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "server/openai/field_reader.h"
#include "server/openai/json_reader.h"

namespace deltad {
namespace {

constexpr double kMostRequests = 1e6;  // a second, and at once
constexpr double kMostTokens = 1e12;   // a minute

const FieldTable<VariantLimit> kLimitTable = {
    {"requests_per_second",
     [](const Json& v, const std::string& p, VariantLimit* limit) {
       return read_number_above(v, p, 0, kMostRequests, &limit->requests_per_second);
     }},
    {"burst",
     [](const Json& v, const std::string& p, VariantLimit* limit) {
       return read_int(v, p, 1, static_cast<int64_t>(kMostRequests), &limit->burst);
     }},
    {"tokens_per_minute",
     [](const Json& v, const std::string& p, VariantLimit* limit) {
       return read_number(v, p, 1, kMostTokens, &limit->tokens_per_minute);
     }},
};

// prefix: before the fields' names in errors.
template <typename T>
ApiError read_fields(const FieldTable<T>& table, const Json& object, const std::string& prefix,
                     T* out) {
  for (const auto& [name, value] : object.items()) {
    const auto it = table.find(name);
    if (it == table.end()) return unknown_parameter(name, prefix + name);
    if (value.is_null()) continue;  // as if it were not there
    RETURN_IF_API_ERROR(it->second(value, prefix + name, out));
  }
  return {};
}

template <typename T>
ApiError read_body(const FieldTable<T>& table, std::string_view body, T* out) {
  Json json;
  RETURN_IF_API_ERROR(parse_json(body, "", &json));
  if (!json.is_object()) return invalid_value("", "The request's body must be a JSON object.");
  return read_fields(table, json, "", out);
}

// param: of the object as a whole.
ApiError read_limit_object(const Json& value, const std::string& param, VariantLimit* out) {
  if (!value.is_object()) return wrong_type(param, "an object or null", value);
  const std::string prefix = param.empty() ? "" : param + ".";
  RETURN_IF_API_ERROR(read_fields(kLimitTable, value, prefix, out));
  if (!out->any())
    return invalid_value(param, "give requests_per_second, tokens_per_minute or both.");
  if (out->burst > 0 && out->requests_per_second == 0)
    return invalid_value(prefix + "burst", "it needs requests_per_second.");
  return {};
}

constexpr size_t kLongestPath = 4096;  // as of Linux

struct BodyFields {
  std::optional<std::string> name, path, base_name;
  bool replace = false;
  VariantLimit limit;
};

ApiError read_name_field(const Json& value, const std::string& param, BodyFields* out) {
  return read_string(value, param, &out->name.emplace());
}
ApiError read_path_field(const Json& value, const std::string& param, BodyFields* out) {
  return read_string(value, param, &out->path.emplace());
}
ApiError read_replace_field(const Json& value, const std::string& param, BodyFields* out) {
  return read_bool(value, param, &out->replace);
}
ApiError read_limit_field(const Json& value, const std::string& param, BodyFields* out) {
  return read_limit_object(value, param, &out->limit);
}

const FieldTable<BodyFields> kAddTable = {
    {"name", read_name_field},
    {"path", read_path_field},
    {"replace", read_replace_field},
    {"rate_limit", read_limit_field},
};
const FieldTable<BodyFields> kReplaceTable = {
    {"path", read_path_field},
    {"rate_limit", read_limit_field},
};
const FieldTable<BodyFields> kLoadAdapterTable = {
    {"lora_name", read_name_field},
    {"lora_path", read_path_field},
    {"load_inplace", read_replace_field},
    {"base_model_name",
     [](const Json& value, const std::string& param, BodyFields* out) {
       return read_string(value, param, &out->base_name.emplace());
     }},
};
const FieldTable<BodyFields> kUnloadAdapterTable = {
    {"lora_name", read_name_field},
    // Clients of vLLM may send it; adapters have no number here.
    {"lora_int_id", [](const Json&, const std::string&, BodyFields*) { return ApiError(); }},
};

struct PoolAddBody {
  std::optional<std::string> name, path, questions;
};
const FieldTable<PoolAddBody> kPoolAddTable = {
    {"name", [](const Json& v, const std::string& p,
                PoolAddBody* out) { return read_string(v, p, &out->name.emplace()); }},
    {"path", [](const Json& v, const std::string& p,
                PoolAddBody* out) { return read_string(v, p, &out->path.emplace()); }},
    {"questions", [](const Json& v, const std::string& p,
                     PoolAddBody* out) { return read_string(v, p, &out->questions.emplace()); }},
};
constexpr int64_t kMostBytes = 1'000'000'000'000'000;
const FieldTable<std::optional<int64_t>> kPoolBudgetTable = {
    {"bytes",
     [](const Json& v, const std::string& p, std::optional<int64_t>* out) {
       return read_int(v, p, 1, kMostBytes, &out->emplace());
     }},
};

ApiError check_path(const std::optional<std::string>& path, const std::string& param) {
  if (!path) return missing_parameter(param);
  if (path->size() > kLongestPath)
    return invalid_value(param, fmt::format("at most {} bytes are allowed.", kLongestPath));
  if (path->empty() || path->front() != '/')
    return invalid_value(param, "expected an absolute path on the server's machine.");
  return {};
}

// param: as the path is called here.
ApiError take(BodyFields fields, const std::string& param, PutFields* out) {
  RETURN_IF_API_ERROR(check_path(fields.path, param));
  out->source = {std::move(*fields.name), std::move(*fields.path), fields.limit};
  out->replace = fields.replace;
  return {};
}

}  // namespace

ApiError read_add(std::string_view body, PutFields* out) {
  BodyFields fields;
  RETURN_IF_API_ERROR(read_body(kAddTable, body, &fields));
  if (!fields.name) return missing_parameter("name");
  return take(std::move(fields), "path", out);
}

ApiError read_replace(std::string_view body, const std::string& name, PutFields* out) {
  BodyFields fields;
  RETURN_IF_API_ERROR(read_body(kReplaceTable, body, &fields));
  fields.name = name;
  fields.replace = true;
  return take(std::move(fields), "path", out);
}

ApiError read_limit(std::string_view body, VariantLimit* out) {
  Json json;
  RETURN_IF_API_ERROR(parse_json(body, "", &json));
  if (json.is_null()) return {};
  if (!json.is_object())
    return invalid_value("", "The request's body must be a JSON object, or null for no limit.");
  return read_limit_object(json, "", out);
}

ApiError read_nothing(std::string_view body) {
  if (body.empty()) return {};
  BodyFields none;
  return read_body(FieldTable<BodyFields>{}, body, &none);
}

ApiError read_pool_add(std::string_view body, PoolAddFields* out) {
  PoolAddBody fields;
  RETURN_IF_API_ERROR(read_body(kPoolAddTable, body, &fields));
  if (!fields.name) return missing_parameter("name");
  RETURN_IF_API_ERROR(check_path(fields.path, "path"));
  RETURN_IF_API_ERROR(check_path(fields.questions, "questions"));
  *out = {std::move(*fields.name), std::move(*fields.path), std::move(*fields.questions)};
  return {};
}

ApiError read_pool_budget(std::string_view body, int64_t* bytes) {
  std::optional<int64_t> given;
  RETURN_IF_API_ERROR(read_body(kPoolBudgetTable, body, &given));
  if (!given) return missing_parameter("bytes");
  *bytes = *given;
  return {};
}

ApiError read_load_adapter(std::string_view body, const std::string& base_name, PutFields* out) {
  BodyFields fields;
  RETURN_IF_API_ERROR(read_body(kLoadAdapterTable, body, &fields));
  if (!fields.name) return missing_parameter("lora_name");
  if (fields.base_name && !fields.base_name->empty() && *fields.base_name != base_name)
    return invalid_value("base_model_name",
                         fmt::format("this server's base is called '{}'.", base_name));
  return take(std::move(fields), "lora_path", out);
}

ApiError read_unload_adapter(std::string_view body, std::string* name) {
  BodyFields fields;
  RETURN_IF_API_ERROR(read_body(kUnloadAdapterTable, body, &fields));
  if (!fields.name) return missing_parameter("lora_name");
  *name = std::move(*fields.name);
  return {};
}

}  // namespace deltad
