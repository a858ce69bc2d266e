// Reads a request's JSON within bounds: depth, number of values, valid UTF-8, no key twice. Linear
// in time whatever the text is. Any thread.
#pragma once

#include <cstddef>
#include <string_view>

#include "server/openai/errors.h"

namespace deltad {

struct JsonLimits {
  int depth = 100;            // arrays and objects inside each other
  size_t values = 2'000'000;  // of all kinds, together
};

// On success *out holds the value. param: what error messages and their param say ("" for the body
// itself).
ApiError parse_json(std::string_view text, const std::string& param, Json* out,
                    const JsonLimits& limits = {});

}  // namespace deltad
