#include "kernels/cpu/pack.h"

#include "kernels/cpu/layout.h"

namespace deltad::cpu {

void pack_base_tile(uint16_t* tile, const uint16_t* values, int64_t count, int64_t columns) {
  for (int64_t r = 0; r < count; ++r) {
    const uint16_t* row = values + r * columns;
    for (int64_t c = 0; c < columns; ++c) tile[base_index(r, c, columns)] = row[c];
  }
}

void pack_sign_tile(uint64_t* tile, const uint8_t* bits, int64_t count, int64_t columns) {
  const int64_t row_bytes = (columns + 7) / 8;
  const int64_t words = padded_columns(columns) / 4;
  const uint8_t last_mask =
      columns % 8 == 0 ? uint8_t{0xff} : static_cast<uint8_t>((1u << (columns % 8)) - 1u);
  for (int64_t r = 0; r < count; ++r) {
    const uint8_t* row = bits + r * row_bytes;
    const int shift = static_cast<int>(4 * r);
    const uint64_t keep = ~(uint64_t{0xf} << shift);
    for (int64_t j = 0; j < row_bytes; ++j) {
      const uint8_t byte = j + 1 == row_bytes ? row[j] & last_mask : row[j];
      tile[2 * j] = (tile[2 * j] & keep) | (static_cast<uint64_t>(byte & 0xf) << shift);
      if (2 * j + 1 < words)
        tile[2 * j + 1] = (tile[2 * j + 1] & keep) | (static_cast<uint64_t>(byte >> 4) << shift);
    }
  }
}

}  // namespace deltad::cpu
