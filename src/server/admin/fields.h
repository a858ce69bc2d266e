// The bodies of admin requests: JSON objects of which every field is known. Each function gives a
// 400 that names the field, else OK. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "router/catalog.h"
#include "server/openai/errors.h"

namespace deltad {

struct PutFields {
  VariantSource source;
  bool replace = false;  // a variant of this name, if there is one
};

// {"name", "path", "replace": false, "rate_limit": null}
ApiError read_add(std::string_view body, PutFields* out);
// {"path", "rate_limit": null} for the variant `name`
ApiError read_replace(std::string_view body, const std::string& name, PutFields* out);
// {"requests_per_second", "burst", "tokens_per_minute"}, or null for none
ApiError read_limit(std::string_view body, VariantLimit* out);
// Nothing, or {}.
ApiError read_nothing(std::string_view body);

struct PoolAddFields {
  std::string name, path, questions;
};
// {"name", "path", "questions"}: an adapter and its evaluation set
ApiError read_pool_add(std::string_view body, PoolAddFields* out);
// {"bytes"}
ApiError read_pool_budget(std::string_view body, int64_t* bytes);

// vLLM's {"lora_name", "lora_path", "load_inplace": false, "base_model_name"}; the last may be
// empty, else it must be the base's.
ApiError read_load_adapter(std::string_view body, const std::string& base_name, PutFields* out);
// {"lora_name"}
ApiError read_unload_adapter(std::string_view body, std::string* name);

}  // namespace deltad
