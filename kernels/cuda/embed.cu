#include "kernels/cuda/device.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/linear_tiles.h"
#include "kernels/cuda/row_slot.h"

namespace deltad::cuda {
namespace {

// Σ_k s_k · B[id, k] · A[k, c] of columns c and c+1, in the order of the ranks.
DELTAD_DEVICE float2 low_rank_pair(const LowRankSlot* slot, int32_t id, int32_t column) {
  const int32_t ranks = load_global(&slot->ranks);
  const uint16_t* b = load_global(&slot->b) + static_cast<int64_t>(id) * ranks;
  const uint16_t* a = load_global(&slot->a) + column;
  const float* scale = load_global(&slot->scale);
  const int64_t stride = load_global(&slot->a_stride);
  float2 sum = make_float2(0, 0);
  for (int32_t k = 0; k < ranks; ++k) {
    const float factor = __fmul_rn(load_global(scale + k), bf16_to_float(load_global(b + k)));
    const uint32_t pair = load_global(reinterpret_cast<const uint32_t*>(a + k * stride));
    sum.x = __fmaf_rn(factor, low_bf16(pair), sum.x);
    sum.y = __fmaf_rn(factor, high_bf16(pair), sum.y);
  }
  return sum;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kEmbedThreads) deltad_embed(EmbedParams p) {
  const auto row = static_cast<int32_t>(blockIdx.x);
  wait_for_previous_kernel();
  let_next_kernel_start();
  const int32_t id = load_global(p.ids + row);
  const void* table = p.table;
  const LowRankSlot* factors = nullptr;
  const int32_t slot = slot_of_row(p.groups, row);
  if (id >= 0 && slot >= 0) {
    const void* own = load_global(p.slot_table + slot);
    if (own != nullptr) table = own;
    if (p.low_rank != nullptr && load_global(&p.low_rank[slot].ranks) > 0) {
      factors = p.low_rank + slot;
    }
  }
  const int32_t steps = (p.columns + kStep - 1) / kStep;
  const auto* tile =
      static_cast<const uint4*>(table) +
      static_cast<int64_t>(id / kTileOutputs) * chunks_of(p.columns) * kChunkSteps * 32 +
      id % kTileOutputs * 4;
  float* out = p.out + row * p.out_stride;
  for (auto n = static_cast<int32_t>(threadIdx.x); in_bounds(n < 4 * steps); n += kEmbedThreads) {
    const uint4 v = id < 0 ? make_uint4(0, 0, 0, 0) : load_global(tile + n / 4 * 32 + n % 4);
    const uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
    DELTAD_UNROLL
    for (int32_t i = 0; i < 4; ++i) {
      const int32_t column = n / 4 * kStep + n % 4 * 2 + 8 * i;
      if (!in_bounds(column < p.columns)) continue;
      float2 value = make_float2(low_bf16(pairs[i]), high_bf16(pairs[i]));
      if (factors != nullptr) {
        const float2 more = low_rank_pair(factors, id, column);
        value.x = __fadd_rn(value.x, more.x);
        value.y = __fadd_rn(value.y, more.y);
      }
      store_global(reinterpret_cast<float2*>(out + column), value);
    }
  }
}

}  // namespace deltad::cuda
