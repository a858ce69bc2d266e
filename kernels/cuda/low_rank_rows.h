// Device code of both low-rank kernels: which rows a block works on.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/low_rank_shrink.h"

namespace deltad::cuda {

// The rows of group blockIdx.y in slice blockIdx.z of the batch; none if first >= end, also if the
// group has no factors.
struct LowRankRows {
  const LowRankSlot* slot;
  int32_t first, end;
};

DELTAD_DEVICE LowRankRows low_rank_rows(const RowGroups* groups, const LowRankSlot* slots) {
  const auto g = static_cast<int32_t>(blockIdx.y);
  if (!in_bounds(g < load_global(&groups->count))) return {nullptr, 0, 0};
  const RowGroup* group = &groups->group[g];
  const int32_t slot = load_global(&group->slot);
  if (slot < 0) return {nullptr, 0, 0};
  const int32_t slice = static_cast<int32_t>(blockIdx.z) * kLowRankSlice;
  const int32_t first = load_global(&group->first_row), end = load_global(&group->end_row);
  return {slots + slot, first > slice ? first : slice,
          end < slice + kLowRankSlice ? end : slice + kLowRankSlice};
}

}  // namespace deltad::cuda
