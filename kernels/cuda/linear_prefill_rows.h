// Prompt rows as the prefill kernels read them: activations in fp16 with a power of two a row, in
// the order in which the tensor cores want them. Every variant's rows begin at a multiple of eight.
//
// Packed: [blocks of 64 columns][packed rows / 8][8 units of 8 columns][8 rows] 16 bytes: whatever
// tile of rows a kernel takes, its 64 columns are one piece of memory. Columns are padded with
// zeros to whole blocks; what lies between two variants' rows is nobody's.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/row_groups.h"

namespace deltad::cuda {

constexpr int32_t kPrefillColumns = 64;  // of a block
constexpr int32_t kPrefillUnits = kPrefillColumns / 8;
constexpr int32_t kPrefillMostRows = 256;  // of a tile
// |x| of a row is below two to the power of one more: fp16 ends at 2^16.
constexpr int32_t kPrefillRowExponent = 14;

DELTAD_HOST_DEVICE constexpr int32_t prefill_blocks(int32_t columns) {
  return (columns + kPrefillColumns - 1) / kPrefillColumns;
}
DELTAD_HOST_DEVICE constexpr int32_t rows_padded_to_8(int32_t rows) { return (rows + 7) / 8 * 8; }

// Packed rows that a buffer must hold for so many rows of so many groups: each group's padding, and
// the rest of the last tile, which is read and never used.
constexpr int32_t prefill_packed_rows(int32_t rows, int32_t groups) {
  return rows_padded_to_8(rows + 7 * groups) + kPrefillMostRows;
}
// In units of 16 bytes.
constexpr int64_t prefill_packed_size(int32_t packed_rows, int32_t columns) {
  return int64_t{prefill_blocks(columns)} * packed_rows * kPrefillUnits;
}

struct PrefillRowsParams {
  const uint16_t* x;  // bf16 [rows, x_stride], rows 16-byte aligned, padded with zeros to whole
                      // 16 bytes
  const RowGroups* groups;
  void* packed;
  float* scale;  // [rows] what a row's fp16 values are to be multiplied with: a power of two
  int64_t x_stride;
  int32_t rows, columns;
  int32_t packed_rows;
};

constexpr int32_t kPrefillRowsWarps = 8;
constexpr uint32_t kPrefillRowsThreads = 32 * kPrefillRowsWarps;
constexpr char kPrefillRowsKernel[] = "deltad_prefill_rows";

// A warp a row.
inline Launch prefill_rows_launch(const PrefillRowsParams& p) {
  return {{static_cast<uint32_t>((p.rows + kPrefillRowsWarps - 1) / kPrefillRowsWarps)},
          {kPrefillRowsThreads},
          0};
}

}  // namespace deltad::cuda
