#include "kernels/cuda/device.h"
#include "kernels/cuda/sum_parts.h"

namespace deltad::cuda {
namespace {

DELTAD_DEVICE float4 add(float4 a, float4 b) {
  a.x = __fadd_rn(a.x, b.x);
  a.y = __fadd_rn(a.y, b.y);
  a.z = __fadd_rn(a.z, b.z);
  a.w = __fadd_rn(a.w, b.w);
  return a;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kSumPartsThreads) deltad_sum_parts(SumPartsParams p) {
  const auto quad = static_cast<int32_t>(blockIdx.y * kSumPartsThreads + threadIdx.x);
  const auto row = static_cast<int64_t>(blockIdx.x);
  wait_for_previous_kernel();
  let_next_kernel_start();
  if (!in_bounds(quad < p.columns / 4)) return;
  // All of them are on their way before the first is needed: they come from far.
  float4 values[kMaxParts];
  DELTAD_UNROLL
  for (int32_t k = 0; k < kMaxParts; ++k) {
    if (k < p.count) {
      values[k] =
          load_global(reinterpret_cast<const float4*>(p.parts[k] + row * p.part_stride) + quad);
    }
  }
  float4 sum = values[0];
  DELTAD_UNROLL
  for (int32_t k = 1; k < kMaxParts; ++k) {
    if (k < p.count) sum = add(sum, values[k]);
  }
  auto* out = reinterpret_cast<float4*>(p.out + row * p.out_stride) + quad;
  if (p.add != 0) sum = add(load_global(out), sum);
  store_global(out, sum);
}

}  // namespace deltad::cuda
