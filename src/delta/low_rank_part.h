// The low-rank part B·A that a variant file may have of a matrix beside its signs: a tensor U8
// [rank, n] with the rows of a packed adapter in 8 bits (delta/packed_adapter.h), s = 1. Pure
// functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "delta/adapter_factors.h"

namespace deltad {

// n
int64_t low_rank_row_bytes(int64_t inputs, int64_t outputs);

std::vector<uint8_t> pack_low_rank(const AdapterFactors& factors);
// Of rows of n bytes, what can be said without knowing what sizes they are for: that their scales
// are good. kInvalidArgument as of unpack_low_rank.
Status check_low_rank_scales(const uint8_t* rows, int64_t rank, int64_t row_bytes);
// As they are served: rounded to bf16. kInvalidArgument says which rank vector is bad, and how.
Result<AdapterFactors> unpack_low_rank(const uint8_t* rows, int64_t rank, int64_t inputs,
                                       int64_t outputs);
// delta [count, inputs] += factor · B·A, rows [first, first+count).
void add_low_rank(const AdapterFactors& factors, int64_t first, int64_t count, double factor,
                  double* delta);

}  // namespace deltad
