// out[r] = x[r] / √(mean(x[r]²) + eps) · weight, rounded to bf16. A block a row; its sum is taken
// in one order whatever the other rows are.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/row_groups.h"

namespace deltad::cuda {

struct RmsNormParams {
  const float* x;                      // [rows, x_stride], rows 16-byte aligned
  const uint16_t* weight;              // bf16 [columns], 8-byte aligned
  const uint16_t* const* slot_weight;  // [slots]: a variant's own weight, or null
  const RowGroups* groups;
  uint16_t* out;  // bf16 [rows, out_stride], rows 8-byte aligned; columns beyond are left alone
  int64_t x_stride, out_stride;
  int32_t rows;
  int32_t columns;  // a multiple of 4
  float eps;
};

constexpr uint32_t kRmsNormThreads = 256;
constexpr char kRmsNormKernel[] = "deltad_rms_norm";

inline Launch rms_norm_launch(const RmsNormParams& p) {
  return {{static_cast<uint32_t>(p.rows)}, {kRmsNormThreads}, kRmsNormThreads / 32 * 4};
}

}  // namespace deltad::cuda
