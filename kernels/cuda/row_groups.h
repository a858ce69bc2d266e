// Which rows of a batch belong to which variant: a table in device memory, of a fixed size, so that
// captured launches hold no variant's pointer.
#pragma once

#include <cstdint>

namespace deltad::cuda {

constexpr int32_t kMaxRowGroups = 64;

// Rows [first_row, end_row) belong to the variant in `slot`, or to the base (−1).
struct RowGroup {
  int32_t first_row, end_row;
  int32_t slot;
};

// The groups cover the rows in order, without gaps.
struct RowGroups {
  int32_t count;
  RowGroup group[kMaxRowGroups];
};

}  // namespace deltad::cuda
