// One row out of a packed matrix (kernels/cpu/layout.h): an embedding.
#pragma once

#include <cstdint>

namespace deltad::cpu {

// out[c] = element (row, c) of the packed bf16 matrix, c < columns.
void unpack_row(float* out, const uint16_t* packed, int64_t row, int64_t columns,
                int64_t padded_columns);

}  // namespace deltad::cpu
