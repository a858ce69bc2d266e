#include "kernels/cuda/device.h"
#include "kernels/cuda/rope_append.h"
#include "kernels/cuda/rotary.h"

namespace deltad::cuda {
namespace {

// Rotates pairs i … i+3 of a head in place.
DELTAD_DEVICE RotatedPairs rotate_pairs(float* head, const float* angles, int32_t half, int32_t i) {
  auto* low = reinterpret_cast<float4*>(head + i);
  auto* high = reinterpret_cast<float4*>(head + half + i);
  const float4 c = load_global(reinterpret_cast<const float4*>(angles + i));
  const float4 s = load_global(reinterpret_cast<const float4*>(angles + half + i));
  const RotatedPairs r = rotate({load_global(low), load_global(high)}, c, s);
  store_global(low, r.low);
  store_global(high, r.high);
  return r;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kRopeAppendThreads)
    deltad_rope_append(RopeAppendParams p) {
  const auto row = static_cast<int32_t>(blockIdx.x);
  wait_for_previous_kernel();
  let_next_kernel_start();
  const int32_t position = load_global(&p.places[row].position);
  const int32_t block =
      load_global(p.block_table + load_global(&p.places[row].first_block) + position / kKvTokens);
  const int32_t token = position % kKvTokens, half = p.head_dim / 2;
  const int32_t padded_dim = padded_head_dim(p.head_dim);
  const int64_t head_values = kv_head_values(padded_dim);
  uint16_t* cache = p.cache + block * (p.kv_heads * head_values);
  float* qkv = p.qkv + row * p.qkv_stride;
  const float* angles = p.cos_sin + static_cast<int64_t>(position) * p.head_dim;
  const auto thread = static_cast<int32_t>(threadIdx.x);

  const int32_t q_quads = p.heads * (half / 4), k_quads = p.kv_heads * (half / 4);
  for (int32_t n = thread; in_bounds(n < q_quads + k_quads); n += kRopeAppendThreads) {
    const int32_t head = n / (half / 4), i = n % (half / 4) * 4;
    if (head < p.heads) {
      rotate_pairs(qkv + p.q_offset + head * p.head_dim, angles, half, i);
      continue;
    }
    const int32_t kv_head = head - p.heads;
    const RotatedPairs k = rotate_pairs(qkv + p.k_offset + kv_head * p.head_dim, angles, half, i);
    append_key(cache + kv_head * head_values, token, i, k.low);
    append_key(cache + kv_head * head_values, token, half + i, k.high);
  }
  // Values, and the padding of both.
  const int32_t quads = padded_dim / 4;
  for (int32_t n = thread; in_bounds(n < p.kv_heads * quads); n += kRopeAppendThreads) {
    const int32_t kv_head = n / quads, dim = n % quads * 4;
    uint16_t* part = cache + kv_head * head_values;
    float4 v = make_float4(0, 0, 0, 0);
    if (in_bounds(dim < p.head_dim)) {
      v = load_global(
          reinterpret_cast<const float4*>(qkv + p.v_offset + kv_head * p.head_dim + dim));
    } else {
      append_key(part, token, dim, v);
    }
    append_value(part, token, dim, padded_dim, v);
  }
}

}  // namespace deltad::cuda
