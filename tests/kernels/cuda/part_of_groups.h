// The groups of some rows of a batch, for cases that run them alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/cuda/row_groups.h"

namespace deltad::cuda {

// Of rows [first, end), counted from first.
inline RowGroups part_of_groups(std::span<const RowGroup> all, int32_t first, int32_t end) {
  RowGroups some{};
  for (const RowGroup& group : all) {
    const int32_t from = std::max(group.first_row, first), to = std::min(group.end_row, end);
    if (from < to) some.group[some.count++] = {from - first, to - first, group.slot};
  }
  return some;
}
inline RowGroups part_of_groups(const RowGroups& all, int32_t first, int32_t end) {
  return part_of_groups(std::span(all.group, static_cast<size_t>(all.count)), first, end);
}

}  // namespace deltad::cuda
