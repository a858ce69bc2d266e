// Device code: the slot of a row.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/row_groups.h"

namespace deltad::cuda {

// −1: the base, or a row beyond the last group.
DELTAD_DEVICE int32_t slot_of_row(const RowGroups* groups, int32_t row) {
  const int32_t count = load_global(&groups->count);
  for (int32_t g = 0; g < count; ++g) {
    if (row < load_global(&groups->group[g].end_row)) return load_global(&groups->group[g].slot);
  }
  return -1;
}

}  // namespace deltad::cuda
