#include "kernels/cuda/device.h"
#include "kernels/cuda/gather_rows.h"

namespace deltad::cuda {

extern "C" __global__ void __launch_bounds__(kGatherRowsThreads)
    deltad_gather_rows(GatherRowsParams p) {
  const auto i = static_cast<int32_t>(blockIdx.x);
  wait_for_previous_kernel();
  let_next_kernel_start();
  const auto* from = reinterpret_cast<const float4*>(p.x + load_global(p.rows + i) * p.x_stride);
  auto* to = reinterpret_cast<float4*>(p.out + i * p.out_stride);
  const int32_t quads = p.columns / 4;
  for (auto q = static_cast<int32_t>(threadIdx.x); in_bounds(q < quads); q += kGatherRowsThreads) {
    store_global(to + q, load_global(from + q));
  }
}

}  // namespace deltad::cuda
