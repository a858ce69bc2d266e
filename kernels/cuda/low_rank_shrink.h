// t[r, k] = s_k · Σ_c A[k, c] · x[r, c] of each row whose variant has factors (low_rank.h). A block
// takes eight ranks of one group of rows over kShrinkColumns columns; parts of the columns follow
// from the weight's shape alone and are added in order by whoever reads t (low_rank_expand.h).
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/low_rank.h"
#include "kernels/cuda/row_groups.h"

namespace deltad::cuda {

struct LowRankShrinkParams {
  const uint16_t* x;         // bf16 [rows, x_stride], rows 16-byte aligned, padded with zeros to a
                             // multiple of 8
  const LowRankSlot* slots;  // [slots], of this weight
  const RowGroups* groups;
  float* t;  // [splits, rows, max_ranks]; rows and ranks without factors are left alone
  int64_t x_stride;
  int32_t rows;
  int32_t columns;
  int32_t max_ranks;   // the most of a slot, padding included
  int32_t max_groups;  // that the batch may have
};

constexpr int32_t kShrinkColumns = 2048;
constexpr int32_t kShrinkWarps = 4;
constexpr uint32_t kShrinkThreads = 32 * kShrinkWarps;
constexpr int32_t kShrinkRanks = 8;  // of a block: the mma's n
// Rows that a block takes, one tile of 16 after the other: few blocks for few rows, many for many.
constexpr int32_t kLowRankSlice = 64;
constexpr char kLowRankShrinkKernel[] = "deltad_low_rank_shrink";

DELTAD_HOST_DEVICE constexpr int32_t low_rank_splits(int32_t columns) {
  return (columns + kShrinkColumns - 1) / kShrinkColumns;
}
constexpr uint32_t low_rank_slices(int32_t rows) {
  return static_cast<uint32_t>((rows + kLowRankSlice - 1) / kLowRankSlice);
}

inline Launch low_rank_shrink_launch(const LowRankShrinkParams& p) {
  const auto splits = static_cast<uint32_t>(low_rank_splits(p.columns));
  return {{static_cast<uint32_t>(p.max_ranks / kShrinkRanks) * splits,
           static_cast<uint32_t>(p.max_groups), low_rank_slices(p.rows)},
          {kShrinkThreads},
          kShrinkWarps * 16 * kShrinkRanks * 4};
}

}  // namespace deltad::cuda
