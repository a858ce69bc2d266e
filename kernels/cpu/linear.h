// The linear layer with fused 1-bit deltas, on packed weights (kernels/cpu/layout.h).
//
//   y[r] = W·x[r] + Σ_level α·(S·x[r]) + B·t[r]       S ∈ {−1, +1}; t: kernels/cpu/low_rank.h
//
// Base, sign and low-rank products are accumulated apart in fp32, each in one order over the
// columns, and added once. So a row's result depends on that row alone: never on the number of
// rows, the other rows, the groups or the split of tiles over threads. One arithmetic for each
// instruction set:
//   scalar, avx2   base and signs in fp32
//   avx512         base in fp32; signs on activations rounded to int8, a scale each kScaleColumns
//   avx512_bf16    base in bf16 (vdpbf16ps); signs as avx512
// Without a group no code for signs runs and no activation is rounded; without a low-rank group no
// code for those runs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu_features.h"
#include "kernels/cpu/low_rank.h"

namespace deltad::cpu {

constexpr int kMaxSignLevels = 4;

enum class LinearEpilogue {
  kStore,        // out[r][o] = y            out fp32
  kAddResidual,  // out[r][o] += y           out fp32
  kSiluGate,  // out[r][i] = silu(gate)·up   tiles of gate and up take turns; out is an activation
};

struct SignLevel {
  const uint64_t* words;  // packed signs of the whole matrix
  const float* alpha;     // [tiles · 16]
};

// Rows [first_row, end_row) of a job that share a variant with at least one level. Groups are in
// rising order and do not overlap; rows between them have no signs.
struct LinearGroup {
  int32_t first_row, end_row;
  int32_t levels;
  SignLevel level[kMaxSignLevels];
};

struct LinearJob {
  const uint16_t* w;     // packed bf16 [tiles · 16, columns]
  int64_t tiles;         // even for kSiluGate
  int64_t columns;       // padded_columns(d_in)
  int64_t rows;          // outputs that are stored (kStore, kAddResidual), at most tiles · 16
  int32_t m;             // rows of the batch in this job
  const void* const* x;  // [m] activations of `columns` values: bf16 (avx512_bf16), else fp32
  void* const* out;      // [m]
  const LinearGroup* groups;
  int32_t group_count;
  const LowRankGroup* low_rank;  // rising, without overlap; any rows may have both kinds of group
  int32_t low_rank_count;
  // Not null: t may still be in the making; run calls this before it first reads t.
  void (*await_t)(const void* context);
  const void* await_context;
  LinearEpilogue epilogue;
};

// What one instruction set offers. A job is run in two steps: prepare lays out (and rounds) the
// activations, in units that may be divided among threads or done by each thread for itself; run
// then computes output tiles [first, end), both even for kSiluGate. All memory is the caller's,
// 64-byte aligned.
struct LinearKernels {
  size_t (*prepared_bytes)(const LinearJob& job);
  int32_t (*prepare_units)(const LinearJob& job);
  void (*prepare)(const LinearJob& job, void* prepared, int32_t first_unit, int32_t end_unit);
  size_t (*worker_bytes)(const LinearJob& job);  // scratch of one thread in run
  void (*run)(const LinearJob& job, const void* prepared, void* scratch, int64_t first_tile,
              int64_t end_tile);
};

const LinearKernels& linear_kernels(Isa isa);

}  // namespace deltad::cpu
