// The one resident layout of weight matrices on the CPU, for one row, many rows and the embedding
// gather alike.
//
// A matrix [d_out, d_in] is cut into tiles of 16 output rows. Within a tile the columns run
// outermost:
//   base (bf16):  16 outputs × 2 columns = 64 bytes = one 512-bit register, the operand of
//   vdpbf16ps.
//                 element (o, c) lies at ((o/16)·(K/2) + c/2)·32 + (o%16)·2 + c%2, counted in bf16
//                 values
//   sign (1 bit): 16 outputs × 4 columns = 64 bits = one mask register, the lanes of vpdpbusd.
//                 element (o, c) is bit (o%16)·4 + c%4 of word (o/16)·(K/4) + c/4; 1 means +
// K = padded_columns(d_in), rows are padded to padded_rows(d_out). Padding of the base and of the
// signs is 0. A tile of the base is one sequential stream of 32·K bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deltad::cpu {

constexpr int kTileRows = 16;
constexpr int kScaleColumns =
    128;  // activations for the sign product are rounded to int8 with a scale per block

constexpr int64_t padded_rows(int64_t rows) {
  return (rows + kTileRows - 1) / kTileRows * kTileRows;
}
constexpr int64_t padded_columns(int64_t columns) { return (columns + 3) / 4 * 4; }

// Sizes in elements: bf16 values of a packed base matrix, 64-bit words of one packed level of
// signs.
constexpr int64_t base_elements(int64_t rows, int64_t columns) {
  return padded_rows(rows) * padded_columns(columns);
}
constexpr int64_t sign_words(int64_t rows, int64_t columns) {
  return padded_rows(rows) / kTileRows * (padded_columns(columns) / 4);
}
constexpr int64_t base_index(int64_t o, int64_t c, int64_t padded_k) {
  return ((o / kTileRows) * (padded_k / 2) + c / 2) * (2 * kTileRows) + (o % kTileRows) * 2 + c % 2;
}

}  // namespace deltad::cpu
