// Low-rank factors (LoRA) of a variant for one weight, as the device holds them:
//   y[r, o] += Σ_k B[o, k] · t[r, k],   t[r, k] = s_k · Σ_c A[k, c] · x[r, c].
// The parts of a fused weight have factors and ranks of their own; their ranks follow each other.
// Each part's rank is padded with zeros to a multiple of 16 (the mma's k), A's rows to one of 32
// values, so both factors are read in whole sectors as they lie, by rows.
#pragma once

#include <cstdint>

namespace deltad::cuda {

constexpr int32_t kRankStep = 16;
constexpr int32_t kMaxLowRankParts = 3;

// Outputs 16 (first + i·step) …, i < tiles, of the weight come from this part.
struct LowRankPart {
  int32_t first_tile, step, tiles;
  int32_t first_rank, rank;  // among the weight's ranks, padding included
  int64_t b;                 // where in LowRankSlot::b its [16·tiles, rank] begins
};

struct LowRankSlot {
  int32_t ranks;  // of all parts, padding included; 0: no factors
  int32_t parts;
  LowRankPart part[kMaxLowRankParts];
  const float* scale;  // [ranks]
  const uint16_t* a;   // bf16 [ranks, a_stride]
  const uint16_t* b;   // bf16, each part's by rows
  int64_t a_stride;    // d_in padded to a multiple of 32
};

}  // namespace deltad::cuda
