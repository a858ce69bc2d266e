// Packing rows of a checkpoint into the resident layout (kernels/cpu/layout.h). Called by loader
// threads; different tiles may be packed at the same time.
#pragma once

#include <cstdint>

namespace deltad::cpu {

// One tile of the base from up to 16 rows: values bf16 [count, columns], row r becomes the tile's
// row r. tile points at the tile's first value. Rows from count on, and padding, are not touched.
void pack_base_tile(uint16_t* tile, const uint16_t* values, int64_t count, int64_t columns);

// One tile of a level of signs: bits [count, ⌈columns/8⌉] bytes (bit i of byte j is column 8j+i).
// tile points at the tile's first word; rows from count on are not touched. Padding bits become 0.
void pack_sign_tile(uint64_t* tile, const uint8_t* bits, int64_t count, int64_t columns);

}  // namespace deltad::cpu
