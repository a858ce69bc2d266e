#include "kernels/cuda/device.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/row_slot.h"

namespace deltad::cuda {
namespace {

// The sum over the block, in one order: lanes pairwise, then the warps' sums one after the other.
DELTAD_DEVICE float sum_over_block(float value) {
  for (int flip = 16; flip > 0; flip /= 2) {
    value = __fadd_rn(value, __shfl_xor_sync(kAllLanes, value, flip));
  }
  const Shared<float> of_warp = dynamic_shared<float>();
  if (threadIdx.x % 32 == 0) store_shared(of_warp + threadIdx.x / 32, value);
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < static_cast<int>(kRmsNormThreads / 32); ++w) {
    sum = __fadd_rn(sum, load_shared(of_warp + w));
  }
  return sum;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kRmsNormThreads) deltad_rms_norm(RmsNormParams p) {
  const int32_t row = static_cast<int32_t>(blockIdx.x);
  const auto* x = reinterpret_cast<const float4*>(p.x + row * p.x_stride);
  auto* out = reinterpret_cast<uint2*>(p.out + row * p.out_stride);
  const uint16_t* weight = p.weight;
  wait_for_previous_kernel();
  const int32_t slot = slot_of_row(p.groups, row);
  if (slot >= 0) {
    const uint16_t* own = load_global(p.slot_weight + slot);
    if (own != nullptr) weight = own;
  }
  const auto* scale = reinterpret_cast<const uint2*>(weight);

  // Rounds of a block's width, so that each thread takes the same columns in both passes.
  const int32_t quads = p.columns / 4;
  float squares = 0;
  for (int32_t q = static_cast<int32_t>(threadIdx.x); in_bounds(q < quads); q += kRmsNormThreads) {
    const float4 v = load_global(x + q);
    squares = __fmaf_rn(v.x, v.x, squares);
    squares = __fmaf_rn(v.y, v.y, squares);
    squares = __fmaf_rn(v.z, v.z, squares);
    squares = __fmaf_rn(v.w, v.w, squares);
  }
  const float mean = sum_over_block(squares) / static_cast<float>(p.columns);
  let_next_kernel_start();
  const float inverse = 1.0f / sqrtf(__fadd_rn(mean, p.eps));
  for (int32_t q = static_cast<int32_t>(threadIdx.x); in_bounds(q < quads); q += kRmsNormThreads) {
    const float4 v = load_global(x + q);
    const uint2 w = load_global(scale + q);
    const uint32_t low = pack_bf16x2(v.x * inverse * low_bf16(w.x), v.y * inverse * high_bf16(w.x));
    const uint32_t high =
        pack_bf16x2(v.z * inverse * low_bf16(w.y), v.w * inverse * high_bf16(w.y));
    store_global(out + q, make_uint2(low, high));
  }
}

}  // namespace deltad::cuda
