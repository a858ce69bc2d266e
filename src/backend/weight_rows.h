// What a backend checks of the places that it is asked to fill, and where rows of a part lie among
// all rows of a weight. Pure functions.
#pragma once

#include <vector>

#include "backend/backend.h"

namespace deltad {

// kInvalidArgument unless weight i of those declared has sizes, and stands for an earlier one if
// for any.
Status check_spec(const std::vector<WeightSpec>& specs, size_t i);
// kInvalidArgument unless there is such a weight with such a part.
Status check_place(const std::vector<WeightSpec>& specs, WeightId weight, int part);

// kInvalidArgument unless the weight `to` can use what a variant has for `from`.
Status check_alias(const std::vector<WeightSpec>& specs, WeightId to, WeightId from);

// Rows [first, first+count) must lie in a part of `rows` rows; a matrix is filled in tiles of 16.
Status check_rows_of(const WeightSpec& spec, int part, int64_t rows, int64_t first, int64_t count);

// Rows 16i … 16i+15 of a part are rows 16 (first + i·step) … of the weight.
struct PartTiles {
  int64_t first, step;
};
PartTiles tiles_of(const WeightSpec& spec, int part);

// Where row r of a part lies among all rows of the weight.
int64_t packed_row(const WeightSpec& spec, int part, int64_t r);
// Rows of the weight without padding, if its last (or only) part has last_rows.
int64_t rows_with(const WeightSpec& spec, int64_t last_rows);

// What a variant's content says of each weight, checked: its places exist, sizes fit, nothing comes
// twice, and no part is replaced and has factors.
struct WeightContent {
  int levels = 0;
  std::vector<bool> replaced;  // by part; empty: no dense replacement
  int64_t dense_rows = 0;      // of the weight with its replacement, unpadded
  std::vector<int64_t> ranks;  // by part, 0 without factors; empty: none has any
};
Result<std::vector<WeightContent>> content_by_weight(const std::vector<WeightSpec>& specs,
                                                     const VariantContent& content);

}  // namespace deltad
