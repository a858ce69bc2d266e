#include "kernels/cuda/device.h"
#include "kernels/cuda/sign_planes.h"

namespace deltad::cuda {

// A block a row, a warp a word (32 columns) at a time: lane l votes on bit p of column l, and the
// vote is plane p's word.
extern "C" __global__ void __launch_bounds__(kSignPlanesThreads)
    deltad_sign_planes(SignPlanesParams p) {
  constexpr int32_t kWarps = kSignPlanesThreads / 32;
  const auto row = static_cast<int32_t>(blockIdx.x);
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const uint16_t* x = p.x + row * p.x_stride;
  const Shared<float> largest_of_warp = dynamic_shared<float>();
  const Shared<int32_t> sum_of_warp = shared_cast<int32_t>(largest_of_warp + kWarps);

  wait_for_previous_kernel();
  float largest = 0;
  for (auto c = static_cast<int32_t>(threadIdx.x); in_bounds(c < p.columns);
       c += kSignPlanesThreads) {
    largest = fmaxf(largest, fabsf(bf16_to_float(load_global(x + c))));
  }
  for (int flip = 16; flip > 0; flip /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, flip));
  }
  if (lane == 0) store_shared(largest_of_warp + warp, largest);
  __syncthreads();
  for (int32_t w = 0; w < kWarps; ++w) {
    largest = fmaxf(largest, load_shared(largest_of_warp + w));
  }
  let_next_kernel_start();
  // Below, the quotient would overflow; such a row's sums are zero to any reader.
  const float to_integer = largest > 1e-30f ? 32767.0f / largest : 0.0f;

  auto* planes = static_cast<uint32_t*>(p.planes) +
                 static_cast<int64_t>(row) * chunks_of(p.columns) * (kChunk / 32 * 16);
  int32_t sum = 0;
  for (int32_t word = warp; word < kChunk / 32 * chunks_of(p.columns); word += kWarps) {
    const int32_t c = 32 * word + lane;
    int32_t q = 0;
    if (in_bounds(c < p.columns)) {
      q = static_cast<int32_t>(rintf(__fmul_rn(bf16_to_float(load_global(x + c)), to_integer)));
    }
    sum += q;
    uint32_t own = 0;
    for (int32_t plane = 0; plane < 16; ++plane) {
      const uint32_t vote = __ballot_sync(kAllLanes, q >> plane & 1);
      if (lane == plane) own = vote;
    }
    // Plane 8h + g, word 4i + t of its chunk: register h + 2i of lane 4g + t.
    const int32_t in_chunk = word % (kChunk / 32);
    const int32_t holder = lane % 8 * 4 + in_chunk % 4, part = lane / 8 + in_chunk / 4 * 2;
    if (lane < 16) {
      store_global(planes + static_cast<int64_t>(word / (kChunk / 32)) * 128 + 4 * holder + part,
                   own);
    }
  }
  for (int flip = 16; flip > 0; flip /= 2) sum += __shfl_xor_sync(kAllLanes, sum, flip);
  if (lane == 0) store_shared(sum_of_warp + warp, sum);
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t all = 0;
    for (int32_t w = 0; w < kWarps; ++w) all += load_shared(sum_of_warp + w);
    store_global(p.sum + row, all);
    store_global(p.scale + row, largest / 32767.0f);
  }
}

}  // namespace deltad::cuda
