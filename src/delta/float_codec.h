// Float tensors between fp32 and the type that a file stores, and rounding fp64 to bf16 once.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace deltad {

inline bool is_float(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

// count elements of a float type as fp32 (exact).
void widen(DType type, int64_t count, const void* in, float* out);
// The reverse. The values must be ones that `type` can hold (they came from it).
void narrow(DType type, int64_t count, const float* in, void* out);

// To nearest even, not by way of fp32, which could round twice.
uint16_t f64_to_bf16(double value);

}  // namespace deltad
