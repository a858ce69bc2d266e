// out[r, i] = silu(gate_i) · up_i, rounded to bf16: the epilogue of gate and up as a kernel of its
// own, for batches in which something is added to the linear layer before it (low-rank factors).
// The same bits as the fused one gives. A block a row.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace deltad::cuda {

struct SiluGateParams {
  const float* in;  // [rows, in_stride], rows 8-byte aligned: columns 32j … 32j+15 are gates and
                    // 32j+16 … 32j+31 their ups
  uint16_t* out;    // bf16 [rows, out_stride], rows 4-byte aligned
  int64_t in_stride, out_stride;
  int32_t rows;
  int32_t columns;  // of out, a multiple of 16
};

constexpr uint32_t kSiluGateThreads = 256;
constexpr char kSiluGateKernel[] = "deltad_silu_gate";

inline Launch silu_gate_launch(const SiluGateParams& p) {
  return {{static_cast<uint32_t>(p.rows)}, {kSiluGateThreads}, 0};
}

}  // namespace deltad::cuda
