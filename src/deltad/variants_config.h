// The `variants` of a config file. Main thread.
#pragma once

#include <yaml-cpp/yaml.h>

#include <vector>

#include "router/catalog.h"

namespace deltad {

inline constexpr const char* kVariantsExpected =
    "a map of NAME: PATH or NAME: {path: PATH, pin: true or false, rate_limit: "
    "{requests_per_second: above 0, burst: a "
    "whole number above 0, tokens_per_minute: 1 or more}}";

// False if the node is not what kVariantsExpected says.
bool read_variants(const YAML::Node& node, std::vector<VariantSource>* out);

}  // namespace deltad
