// out = Σ parts, or out += Σ parts: what the ranks of tensor parallelism have of a sum, each in its
// own GPU's memory, which this one reads. Added in the order of the parts whatever the size, so
// that every rank has the same bits. A block 1024 columns of a row.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace deltad::cuda {

constexpr int32_t kMaxParts = 16;

struct SumPartsParams {
  const float* parts[kMaxParts];  // [rows, part_stride] each, rows 16-byte aligned
  float* out;                     // [rows, out_stride], rows 16-byte aligned; may be a part
  int64_t part_stride, out_stride;
  int32_t count;  // of parts, at least 1
  int32_t rows;
  int32_t columns;  // a multiple of 4
  int32_t add;      // to what out holds, or 0
};

constexpr uint32_t kSumPartsThreads = 256;
constexpr char kSumPartsKernel[] = "deltad_sum_parts";

inline Launch sum_parts_launch(const SumPartsParams& p) {
  const auto quads = static_cast<uint32_t>(p.columns / 4);
  // Rows are the grid's first dimension: the others end at 65535.
  return {{static_cast<uint32_t>(p.rows), (quads + kSumPartsThreads - 1) / kSumPartsThreads},
          {kSumPartsThreads},
          0};
}

}  // namespace deltad::cuda
