#include "kernels/cuda/device.h"
#include "kernels/cuda/silu.h"
#include "kernels/cuda/silu_gate.h"

namespace deltad::cuda {

extern "C" __global__ void __launch_bounds__(kSiluGateThreads) deltad_silu_gate(SiluGateParams p) {
  wait_for_previous_kernel();
  let_next_kernel_start();
  const auto row = static_cast<int32_t>(blockIdx.x);
  const float* in = p.in + row * p.in_stride;
  uint16_t* out = p.out + row * p.out_stride;
  const int32_t pairs = p.columns / 2;
  for (auto n = static_cast<int32_t>(threadIdx.x); in_bounds(n < pairs); n += kSiluGateThreads) {
    const int32_t i = 2 * n;
    const auto* gate = reinterpret_cast<const float2*>(in + i / 16 * 32 + i % 16);
    const float2 g = load_global(gate), up = load_global(gate + 8);
    store_global(reinterpret_cast<uint32_t*>(out + i),
                 pack_bf16x2(__fmul_rn(silu(g.x), up.x), __fmul_rn(silu(g.y), up.y)));
  }
}

}  // namespace deltad::cuda
