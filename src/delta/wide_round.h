// Rounding fp64 to bf16 once (not by way of fp32, which could round twice).
#pragma once

#include <cmath>
#include <cstdint>

#include "tensor/float16.h"

namespace deltad {

// To nearest even.
inline uint16_t f64_to_bf16(double value) {
  const float nearest = static_cast<float>(value);
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  const double back = nearest;
  if (back != value && std::isfinite(nearest)) {
    // Round to odd in fp32: truncate towards zero, then let the last bit remember what was cut off.
    if (std::fabs(back) > std::fabs(value)) --bits;
    bits |= 1u;
  }
  return f32_to_bf16(std::bit_cast<float>(bits));
}

}  // namespace deltad
