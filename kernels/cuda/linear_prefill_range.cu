#include "kernels/cuda/device.h"
#include "kernels/cuda/linear_prefill_range.h"

namespace deltad::cuda {

extern "C" __global__ void __launch_bounds__(kWeightRangeThreads)
    deltad_weight_range(WeightRangeParams p) {
  const Shared<uint32_t> counts = dynamic_shared<uint32_t>();
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const auto own = static_cast<int32_t>(blockIdx.x);
  const int32_t units = weight_range_units(p.columns);
  const uint4* w = static_cast<const uint4*>(p.w) + static_cast<int64_t>(own) * units;
  store_shared(counts + thread, 0);  // as many threads as counts
  __syncthreads();
  for (int32_t i = thread; in_bounds(i < units); i += kWeightRangeThreads) {
    const uint4 v = load_global(w + i);
    for (uint32_t pair : {v.x, v.y, v.z, v.w}) {
      for (uint32_t bits : {pair & 0x7fffu, pair >> 16 & 0x7fffu}) {
        if (bits != 0) atomic_add_shared(counts + (bits >> 7), 1);
      }
    }
  }
  __syncthreads();
  store_global(p.counts + own * 256 + thread, load_shared(counts + thread));
}

}  // namespace deltad::cuda
