#include "kernels/cuda/device.h"
#include "kernels/cuda/linear_prefill_range.h"

namespace deltad::cuda {

extern "C" __global__ void __launch_bounds__(kWeightRangeThreads)
    deltad_weight_range(WeightRangeParams p) {
  const Shared<uint32_t> counts = dynamic_shared<uint32_t>();
  const auto thread = static_cast<int32_t>(threadIdx.x);
  store_shared(counts + thread, 0);  // as many threads as counts
  __syncthreads();
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kWeightRangeThreads + thread;
       in_bounds(i < p.units); i += static_cast<int64_t>(gridDim.x) * kWeightRangeThreads) {
    const uint4 v = load_global(static_cast<const uint4*>(p.w) + i);
    for (uint32_t pair : {v.x, v.y, v.z, v.w}) {
      for (uint32_t bits : {pair & 0x7fffu, pair >> 16 & 0x7fffu}) {
        if (bits != 0) atomic_add_shared(counts + (bits >> 7), 1);
      }
    }
  }
  __syncthreads();
  const uint32_t count = load_shared(counts + thread);
  if (count != 0) atomicAdd(p.counts + thread, count);
}

}  // namespace deltad::cuda
