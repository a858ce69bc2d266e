// CpuMatrix: one weight as it lies in memory on the CPU (layout: kernels/cpu/layout.h), the base's
// or what a variant has instead. Memory belongs to an arena. Written by loader threads, then
// constant.
#pragma once

#include <cstdint>

#include "backend/weights.h"
#include "base/status.h"
#include "tensor/arena.h"

namespace deltad {

struct CpuMatrix {
  MemoryPiece storage;      // bf16 in tiles, or fp32 [rows] for a vector
  int64_t rows = 0;         // unpadded rows of the last part's end; for an embedding or head the
                            // vocabulary
  int64_t padded_rows = 0;  // all rows, padding included (a multiple of 16)
  int64_t columns = 0;      // d_in
  int64_t padded_columns = 0;
};

// The sizes of a matrix of so many rows (weight_rows.h: rows_with) of the spec's columns, without
// memory.
CpuMatrix sized_matrix(const WeightSpec& spec, int64_t rows);
// What its storage takes.
size_t storage_bytes(const CpuMatrix& m, const WeightSpec& spec);

// values bf16 [count, d_in]: rows [first, first+count) of a part, which check_rows_of allows.
void put_values(const CpuMatrix& m, const WeightSpec& spec, int part, int64_t first, int64_t count,
                const uint16_t* values);

}  // namespace deltad
