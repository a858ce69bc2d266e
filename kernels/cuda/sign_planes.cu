#include "kernels/cuda/device.h"
#include "kernels/cuda/sign_planes.h"

namespace deltad::cuda {
namespace {

constexpr int32_t kWarps = kSignPlanesThreads / 32;

// Several blocks share a row, so that a few rows keep a device busy: each finds the row's largest
// value for itself, then all but the last make a part of the planes, and the last the sum.
struct SignPlanes {
  const SignPlanesParams& p;
  const int32_t row, thread, lane, warp;
  const uint16_t* x;
  const Shared<uint32_t> of_warp;  // [kWarps]

  DELTAD_DEVICE explicit SignPlanes(const SignPlanesParams& params)
      : p(params),
        row(static_cast<int32_t>(blockIdx.x)),
        thread(static_cast<int32_t>(threadIdx.x)),
        lane(thread % 32),
        warp(thread / 32),
        x(p.x + row * p.x_stride),
        of_warp(dynamic_shared<uint32_t>()) {}

  // The row in units of 16 bytes, dealt out to threads: f(pair of bf16).
  template <class F>
  DELTAD_DEVICE void for_own_pairs(F f) const {
    const int32_t units = (p.columns + 7) / 8;
    const auto* from = reinterpret_cast<const uint4*>(x);
    for (int32_t u = thread; in_bounds(u < units); u += kSignPlanesThreads) {
      const uint4 v = load_global(from + u);
      for (uint32_t pair : {v.x, v.y, v.z, v.w}) f(pair);
    }
  }

  // A bf16 without its sign is the larger the larger its bits are.
  DELTAD_DEVICE float largest() const {
    uint32_t most = 0;
    for_own_pairs([&](uint32_t pair) {
      const uint32_t low = pair & 0x7fffu, high = pair >> 16 & 0x7fffu;
      most = low > most ? low : most;
      most = high > most ? high : most;
    });
    for (int flip = 16; flip > 0; flip /= 2) {
      const uint32_t other = __shfl_xor_sync(kAllLanes, most, flip);
      most = other > most ? other : most;
    }
    if (lane == 0) store_shared(of_warp + warp, most);
    __syncthreads();
    for (int32_t w = 0; w < kWarps; ++w) {
      const uint32_t other = load_shared(of_warp + w);
      most = other > most ? other : most;
    }
    return __uint_as_float(most << 16);
  }

  DELTAD_DEVICE static int32_t integer(float value, float to_integer) {
    return static_cast<int32_t>(rintf(__fmul_rn(value, to_integer)));
  }

  // A warp a word (32 columns) at a time: lane l votes on bit p of column l, and the vote is plane
  // p's word.
  DELTAD_DEVICE void make_planes(float to_integer) const {
    constexpr int32_t kChunkWords = kChunk / 32;
    const int32_t first = static_cast<int32_t>(blockIdx.y) * kSignPlanesChunks;
    const int32_t all = chunks_of(p.columns);
    const int32_t end = all < first + kSignPlanesChunks ? all : first + kSignPlanesChunks;
    auto* planes = static_cast<uint32_t*>(p.planes) + static_cast<int64_t>(row) * all * 128;
    for (int32_t word = first * kChunkWords + warp; word < end * kChunkWords; word += kWarps) {
      const int32_t c = 32 * word + lane;
      int32_t q = 0;
      if (in_bounds(c < p.columns)) q = integer(bf16_to_float(load_global(x + c)), to_integer);
      uint32_t own = 0;
      for (int32_t plane = 0; plane < 16; ++plane) {
        const uint32_t vote = __ballot_sync(kAllLanes, q >> plane & 1);
        if (lane == plane) own = vote;
      }
      // Plane 8h + g, word 4i + t of its chunk: register h + 2i of lane 4g + t.
      const int32_t in_chunk = word % kChunkWords;
      const int32_t holder = lane % 8 * 4 + in_chunk % 4, part = lane / 8 + in_chunk / 4 * 2;
      if (lane < 16) store_global(planes + word / kChunkWords * 128 + 4 * holder + part, own);
    }
  }

  DELTAD_DEVICE void make_sum(float to_integer) const {
    int32_t sum = 0;
    for_own_pairs([&](uint32_t pair) {
      sum += integer(low_bf16(pair), to_integer) + integer(high_bf16(pair), to_integer);
    });
    for (int flip = 16; flip > 0; flip /= 2) sum += __shfl_xor_sync(kAllLanes, sum, flip);
    __syncthreads();  // all have read what the place held before
    if (lane == 0) store_shared(of_warp + warp, static_cast<uint32_t>(sum));
    __syncthreads();
    if (thread != 0) return;
    uint32_t all = 0;
    for (int32_t w = 0; w < kWarps; ++w) all += load_shared(of_warp + w);
    store_global(p.sum + row, static_cast<int32_t>(all));
  }
};

}  // namespace

extern "C" __global__ void __launch_bounds__(kSignPlanesThreads)
    deltad_sign_planes(SignPlanesParams p) {
  // The linear layer, next, asks for its weights meanwhile.
  let_next_kernel_start();
  wait_for_previous_kernel();
  const SignPlanes of_row(p);
  const float largest = of_row.largest();
  // Below, the quotient would overflow; such a row's sums are zero to any reader.
  const float to_integer = largest > 1e-30f ? 32767.0f / largest : 0.0f;
  if (blockIdx.y + 1 < gridDim.y) {
    of_row.make_planes(to_integer);
    return;
  }
  of_row.make_sum(to_integer);
  if (of_row.thread == 0) store_global(p.scale + of_row.row, largest / 32767.0f);
}

}  // namespace deltad::cuda
