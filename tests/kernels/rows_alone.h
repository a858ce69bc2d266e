// That a row's result depends on nothing but the row: not on the batch it is in, nor on how much of
// the batch there is.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "tests/kernels/linear_case.h"

namespace deltad::testing {

// One group after the other.
inline std::vector<RowGroup> groups_of(std::span<const int32_t> sizes,
                                       std::span<const int32_t> slots) {
  std::vector<RowGroup> groups;
  int32_t at = 0;
  for (size_t g = 0; g < sizes.size(); at += sizes[g++])
    groups.push_back({at, at + sizes[g], slots[g]});
  return groups;
}

// Rows [from, from + n) of x [·, columns].
inline std::vector<float> rows_of(const std::vector<float>& x, int64_t columns, int64_t from,
                                  int64_t n) {
  return {x.begin() + from * columns, x.begin() + (from + n) * columns};
}

// Each row of `all`, the result of the whole batch, has the same bits as when it is alone.
inline void expect_rows_as_alone(LinearCase& c, const std::vector<float>& x,
                                 const std::vector<RowGroup>& groups, Epilogue epilogue,
                                 const std::vector<float>& all) {
  const auto wide = static_cast<size_t>(c.out_columns(epilogue));
  for (const RowGroup& g : groups)
    for (int32_t r = g.first_row; r < g.end_row; ++r) {
      const std::vector<float> alone =
          c.run(rows_of(x, c.columns(), r, 1), {{{0, 1, g.slot}}}, epilogue);
      ASSERT_EQ(0, std::memcmp(alone.data(), all.data() + static_cast<size_t>(r) * wide,
                               wide * sizeof(float)))
          << "row " << r;
    }
}

// So has each prefix of 1, 1 + step, … rows.
inline void expect_prefixes_as_whole(LinearCase& c, const std::vector<float>& x,
                                     const std::vector<RowGroup>& groups, Epilogue epilogue,
                                     const std::vector<float>& all, int32_t step) {
  for (int32_t m = 1; m < groups.back().end_row; m += step) {
    std::vector<RowGroup> cut;
    for (const RowGroup& g : groups)
      if (g.first_row < m) cut.push_back({g.first_row, std::min(g.end_row, m), g.slot});
    const std::vector<float> y = c.run(rows_of(x, c.columns(), 0, m), cut, epilogue);
    ASSERT_EQ(0, std::memcmp(y.data(), all.data(), y.size() * sizeof(float))) << m << " rows";
  }
}

}  // namespace deltad::testing
