#include "kernels/cuda/device.h"
#include "kernels/cuda/low_rank_expand.h"
#include "kernels/cuda/low_rank_rows.h"
#include "kernels/cuda/split_bf16.h"

namespace deltad::cuda {
namespace {

// What the warp's tile of 16 outputs is multiplied with.
struct Factors {
  const uint16_t* b;  // of the tile's first output; null: the tile's part has no factors
  int32_t first_rank, rank;
};

DELTAD_DEVICE Factors factors_of(const LowRankSlot* slot, int32_t tile) {
  const int32_t parts = load_global(&slot->parts);
  for (int32_t i = 0; i < parts; ++i) {
    const LowRankPart* part = &slot->part[i];
    const int32_t step = load_global(&part->step), rank = load_global(&part->rank);
    const int32_t ahead = tile - load_global(&part->first_tile), n = ahead / step;
    if (ahead >= 0 && ahead % step == 0 && n < load_global(&part->tiles)) {
      const int64_t at = load_global(&part->b) + int64_t{16} * n * rank;
      return {load_global(&slot->b) + at, load_global(&part->first_rank), rank};
    }
  }
  return {nullptr, 0, 0};
}

// Four ranks of a row of t, its splits added in order.
DELTAD_DEVICE float4 load_t(const LowRankExpandParams& p, int32_t row, int32_t rank, bool there) {
  float4 sum = make_float4(0, 0, 0, 0);
  if (!there) return sum;
  const float* t = p.t + static_cast<int64_t>(row) * p.max_ranks + rank;
  const int64_t stride = static_cast<int64_t>(p.rows) * p.max_ranks;
  // Rolled: few splits are usual, and registers are for the tiles.
  DELTAD_ROLLED
  for (int32_t split = 0; split < p.splits; ++split) {
    const float4 v = load_global(reinterpret_cast<const float4*>(t + split * stride));
    sum.x = __fadd_rn(sum.x, v.x);
    sum.y = __fadd_rn(sum.y, v.y);
    sum.z = __fadd_rn(sum.z, v.z);
    sum.w = __fadd_rn(sum.w, v.w);
  }
  return sum;
}

DELTAD_DEVICE void add_pair(float* at, float a, float b) {
  auto* pair = reinterpret_cast<float2*>(at);
  const float2 old = load_global(pair);
  store_global(pair, make_float2(__fadd_rn(old.x, a), __fadd_rn(old.y, b)));
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kExpandThreads)
    deltad_low_rank_expand(LowRankExpandParams p) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, group = lane / 4, four = lane % 4;
  const auto tile = static_cast<int32_t>(blockIdx.x * kExpandWarps + threadIdx.x / 32);
  wait_for_previous_kernel();
  let_next_kernel_start();
  const LowRankRows own = low_rank_rows(p.groups, p.slots);
  if (own.first >= own.end) return;
  const Factors factors = factors_of(own.slot, tile);
  if (factors.b == nullptr) return;  // tiles beyond the weight are in no part

  for (int32_t row0 = own.first; row0 < own.end; row0 += 16) {
    const int32_t upper = row0 + group, lower = upper + 8;
    const bool upper_there = in_bounds(upper < own.end);
    const bool lower_there = in_bounds(lower < own.end);
    // Outputs 8h + 2·four … of rows `upper` and `lower`.
    float sum[2][4] = {};
    for (int32_t k = 0; k < factors.rank; k += kRankStep) {
      // Ranks 4·four … of the step: their order in the mma is another, the same for both operands.
      const int32_t rank = k + 4 * four;
      const float4 t0 = load_t(p, upper, factors.first_rank + rank, upper_there);
      const float4 t1 = load_t(p, lower, factors.first_rank + rank, lower_there);
      const SplitPair a0 = split_bf16(t0.x, t0.y), a1 = split_bf16(t1.x, t1.y);
      const SplitPair a2 = split_bf16(t0.z, t0.w), a3 = split_bf16(t1.z, t1.w);
      const uint32_t rounded[4] = {a0.upper, a1.upper, a2.upper, a3.upper};
      const uint32_t left[4] = {a0.lower, a1.lower, a2.lower, a3.lower};
      DELTAD_UNROLL
      for (int32_t half = 0; half < 2; ++half) {
        const uint16_t* at = factors.b + (8 * half + group) * factors.rank + rank;
        const uint2 v = load_global(reinterpret_cast<const uint2*>(at));
        const uint32_t b[2] = {v.x, v.y};
        mma_m16n8k16_bf16(sum[half], rounded, b);
        mma_m16n8k16_bf16(sum[half], left, b);
      }
    }
    DELTAD_UNROLL
    for (int32_t half = 0; half < 2; ++half) {
      float* out = p.out + 16 * tile + 8 * half + 2 * four;
      if (upper_there) add_pair(out + upper * p.out_stride, sum[half][0], sum[half][1]);
      if (lower_there) add_pair(out + lower * p.out_stride, sum[half][2], sum[half][3]);
    }
  }
}

}  // namespace deltad::cuda
