// out[i] = x[rows[i]]: the rows whose logits are wanted. A block a row.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace deltad::cuda {

struct GatherRowsParams {
  const float* x;       // [any, x_stride], rows 16-byte aligned
  const int32_t* rows;  // [count]
  float* out;           // [count, out_stride], rows 16-byte aligned
  int64_t x_stride, out_stride;
  int32_t count;
  int32_t columns;  // a multiple of 4
};

constexpr uint32_t kGatherRowsThreads = 256;
constexpr char kGatherRowsKernel[] = "deltad_gather_rows";

inline Launch gather_rows_launch(const GatherRowsParams& p) {
  return {{static_cast<uint32_t>(p.count)}, {kGatherRowsThreads}, 0};
}

}  // namespace deltad::cuda
