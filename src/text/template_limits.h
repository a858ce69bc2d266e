// TemplateLimits: what rendering a chat template may cost.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deltad {

struct TemplateLimits {
  int64_t steps = 2'000'000;        // statements and expressions evaluated
  int depth = 200;                  // nested calls, blocks and expressions
  size_t output_bytes = 16u << 20;  // text produced, and the largest string made on the way
};

}  // namespace deltad
