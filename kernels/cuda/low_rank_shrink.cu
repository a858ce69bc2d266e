#include "kernels/cuda/device.h"
#include "kernels/cuda/low_rank_rows.h"
#include "kernels/cuda/low_rank_shrink.h"

namespace deltad::cuda {
namespace {

constexpr int32_t kStepColumns = 32;  // two mma: 16 bytes of a row of A, or of x, for four lanes

// Columns 8t … 8t+7 of a step, or zeros.
DELTAD_DEVICE uint4 load_columns(const uint16_t* row, int32_t column, bool there) {
  return there ? load_global(reinterpret_cast<const uint4*>(row + column)) : make_uint4(0, 0, 0, 0);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kShrinkThreads)
    deltad_low_rank_shrink(LowRankShrinkParams p) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t lane = thread % 32, warp = thread / 32, group = lane / 4;
  const int32_t splits = low_rank_splits(p.columns);
  const int32_t split = static_cast<int32_t>(blockIdx.x) % splits;
  const int32_t rank0 = static_cast<int32_t>(blockIdx.x) / splits * kShrinkRanks;
  wait_for_previous_kernel();
  let_next_kernel_start();
  const LowRankRows own = low_rank_rows(p.groups, p.slots);
  if (own.first >= own.end) return;
  const int32_t ranks = load_global(&own.slot->ranks);
  if (!in_bounds(rank0 < ranks)) return;
  const uint16_t* a =
      load_global(&own.slot->a) + (rank0 + group) * load_global(&own.slot->a_stride);

  // A warp takes every fourth step of the split's columns.
  const int32_t first = split * kShrinkColumns;
  const int32_t end = first + kShrinkColumns < p.columns ? first + kShrinkColumns : p.columns;
  const Shared<float> sums = dynamic_shared<float>();  // [warps][16 rows][8 ranks]
  for (int32_t row0 = own.first; row0 < own.end; row0 += 16) {
    const uint16_t* x = p.x + (row0 + group) * p.x_stride;
    const bool upper = in_bounds(row0 + group < own.end);
    const bool lower = in_bounds(row0 + group + 8 < own.end);
    float sum[4] = {};
    for (int32_t step = first + kStepColumns * warp; in_bounds(step < end);
         step += kStepColumns * kShrinkWarps) {
      const int32_t column = step + lane % 4 * 8;
      const bool there = in_bounds(column < p.columns);
      const uint4 factor = load_columns(a, column, true);
      const uint4 high = load_columns(x, column, upper && there);
      const uint4 low = load_columns(x + 8 * p.x_stride, column, lower && there);
      const uint32_t first_x[4] = {high.x, low.x, high.y, low.y};
      const uint32_t second_x[4] = {high.z, low.z, high.w, low.w};
      const uint32_t first_a[2] = {factor.x, factor.y}, second_a[2] = {factor.z, factor.w};
      mma_m16n8k16_bf16(sum, first_x, first_a);
      mma_m16n8k16_bf16(sum, second_x, second_a);
    }
    const Shared<float> own_sums = sums + (warp * 16 + group) * kShrinkRanks + lane % 4 * 2;
    store_shared(shared_cast<float2>(own_sums), make_float2(sum[0], sum[1]));
    store_shared(shared_cast<float2>(own_sums + 8 * kShrinkRanks), make_float2(sum[2], sum[3]));
    __syncthreads();
    // One value a thread, of the warps in order.
    const int32_t row = row0 + thread / kShrinkRanks, rank = rank0 + thread % kShrinkRanks;
    if (in_bounds(row < own.end)) {
      float all = load_shared(sums + thread);
      for (int32_t w = 1; w < kShrinkWarps; ++w) {
        all = __fadd_rn(all, load_shared(sums + (w * 16 * kShrinkRanks + thread)));
      }
      all = __fmul_rn(all, load_global(load_global(&own.slot->scale) + rank));
      store_global(p.t + (static_cast<int64_t>(split) * p.rows + row) * p.max_ranks + rank, all);
    }
    __syncthreads();
  }
}

}  // namespace deltad::cuda
