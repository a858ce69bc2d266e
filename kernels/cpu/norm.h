// RMSNorm of one row. Arithmetic fp32: the row's columns are summed in one fixed order.
#pragma once

#include <cstdint>

#include "base/cpu_features.h"

namespace deltad::cpu {

// out[c] = x[c] / √(mean(x²) + eps) · weight[c] for c < columns. out is bf16 for avx512_bf16, else
// fp32; only its first `columns` elements are written.
using RmsNormRow = void (*)(void* out, const float* x, const float* weight, int64_t columns,
                            float eps);

RmsNormRow rms_norm_row(Isa isa);

}  // namespace deltad::cpu
