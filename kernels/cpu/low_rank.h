// Low-rank factors beside a weight (LoRA), for rows that share a variant:
//
//   y[r] += B·(s·(A·x[r]))
//
// in two steps: shrink makes t[r] = s·(A·x[r]), fp32, one value a rank; expand adds B·t[r] to the
// sums of output tiles, before they are rounded or stored. Factors are bf16, sums fp32; each value
// of t and of y is added up in one order, so a row's result depends on that row alone. The parts of
// a fused weight have factors and ranks of their own; their ranks follow each other.
//
// Factors are small, and few rows read them once a step: by then no cache holds them. So the linear
// layer calls for them while W streams past: for B of the tiles that it is working out, and for
// what the weight that comes next in the forward pass reads first (LowRank::next).
#pragma once

#include <cstdint>

#include "base/cpu_features.h"
#include "kernels/cpu/layout.h"

namespace deltad::cpu {

constexpr int64_t kLowRankPadding = 32;  // a row of A has a multiple of so many values

// B for one tile of 16 outputs: bf16 [(rank + 1) / 2][16][2]: two ranks of an output lie side by
// side, and 0 beside the last of an odd number.
constexpr int64_t low_rank_tile_values(int32_t rank) {
  return static_cast<int64_t>(rank + 1) / 2 * 2 * kTileRows;
}

// A part with factors, and where they are.
struct LowRankPart {
  int32_t first_tile, shift, tiles;  // its i-th tile is the weight's tile first_tile + (i << shift)
  int32_t first, rank;               // its ranks are [first, first + rank) of the weight's
  int64_t b, b_step;                 // B of its i-th tile begins at value b + i·b_step
};

struct LowRank {
  int32_t ranks = 0;  // of all parts together; 0: no factors
  int32_t part_count = 0;
  const LowRankPart* parts = nullptr;  // those with factors, in order
  const float* scale = nullptr;        // s [ranks]
  const uint16_t* a = nullptr;         // bf16 [ranks, a_stride], zeros beyond d_in
  int64_t a_stride = 0;                // a multiple of kLowRankPadding
  const uint16_t* b = nullptr;         // tile after tile of the weight
  // Parts, scales and A of the weight that the same variant's rows read next.
  const void* next = nullptr;
  int64_t next_bytes = 0;
};

// Rows [first_row, end_row) of a job that share a variant.
struct LowRankGroup {
  int32_t first_row, end_row;
  LowRank factors;
  float* t;  // [end_row − first_row, ranks]
};

struct LowRankKernels {
  // t of ranks [first_rank, end_rank) and rows [first_row, end_row) of the job, which are the
  // group's. x: the job's rows: bf16 (avx512_bf16) or fp32, padded with zeros to 64 bytes.
  void (*shrink)(const LowRankGroup& group, const void* const* x, int64_t columns,
                 int32_t first_rank, int32_t end_rank, int32_t first_row, int32_t end_row);
  // Adds B·t to the sums of `tiles` tiles from `tile` on and of rows [first_row, end_row) of the
  // job: of row r and the i-th tile 16 values at sums + i·tile_stride + (r − first_row)·16.
  void (*expand)(const LowRankGroup& group, int32_t first_row, int32_t end_row, float* sums,
                 int64_t tile_stride, int64_t tile, int64_t tiles);
};

const LowRankKernels& low_rank_kernels(Isa isa);

// out[c] += Σ_k s_k·B[row, k]·A[k, c], c < columns: what the factors add to one row of an
// embedding.
void add_low_rank_row(float* out, const LowRank& factors, int64_t row, int64_t columns);

}  // namespace deltad::cpu
