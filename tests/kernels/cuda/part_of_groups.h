// Groups of a batch's rows: of some of them, for cases that run them alone; of one.
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

// The slot of a row's group; −1 if it has none.
inline int32_t slot_of(std::span<const RowGroup> groups, int32_t row) {
  for (const RowGroup& group : groups) {
    if (row < group.end_row) return group.slot;
  }
  return -1;
}
inline int32_t slot_of(const RowGroups& groups, int32_t row) {
  return slot_of(std::span(groups.group, static_cast<size_t>(groups.count)), row);
}

}  // namespace deltad::cuda
