// out[r, o] += Σ_k B[o, k] · t[r, k] for each row whose variant has factors (low_rank.h); other
// rows, and outputs of parts without factors, are left alone. A warp takes 16 outputs of one group
// of rows. t is split into two bf16, so that it keeps 16 bits.
//
// Before an epilogue that is not a sum (a gate), out is a buffer of zeros that the linear layer
// adds to its accumulators; else it is the layer's own output.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/low_rank.h"
#include "kernels/cuda/low_rank_shrink.h"
#include "kernels/cuda/row_groups.h"

namespace deltad::cuda {

struct LowRankExpandParams {
  const float* t;            // [splits, rows, max_ranks], from the shrink
  const LowRankSlot* slots;  // [slots], of this weight
  const RowGroups* groups;
  float* out;  // [rows, out_stride], rows 8-byte aligned
  int64_t out_stride;
  int32_t rows;
  int32_t outputs;  // a multiple of 16
  int32_t splits;   // low_rank_splits(columns)
  int32_t max_ranks;
  int32_t max_groups;  // that the batch may have
};

constexpr int32_t kExpandWarps = 4;
constexpr uint32_t kExpandThreads = 32 * kExpandWarps;
constexpr char kLowRankExpandKernel[] = "deltad_low_rank_expand";

inline Launch low_rank_expand_launch(const LowRankExpandParams& p) {
  return {{static_cast<uint32_t>((p.outputs / 16 + kExpandWarps - 1) / kExpandWarps),
           static_cast<uint32_t>(p.max_groups), low_rank_slices(p.rows)},
          {kExpandThreads},
          0};
}

}  // namespace deltad::cuda
