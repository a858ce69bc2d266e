#include "kernels/cpu/embed.h"

#include <bit>

#include "kernels/cpu/layout.h"

namespace deltad::cpu {

// A row touches one cache line for every two columns, so the memory sets the pace, not the loop.
void unpack_row(float* out, const uint16_t* packed, int64_t row, int64_t columns,
                int64_t padded_columns) {
  for (int64_t c = 0; c < columns; ++c) {
    const uint32_t bits = packed[base_index(row, c, padded_columns)];
    out[c] = std::bit_cast<float>(bits << 16);
  }
}

}  // namespace deltad::cpu
