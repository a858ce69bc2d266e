#include "kernels/cuda/device.h"
#include "kernels/cuda/rope_append.h"

namespace deltad::cuda {
namespace {

struct RotatedPairs {
  float4 low, high;  // of four pairs
};

// a·cos − b·sin, b·cos + a·sin.
DELTAD_DEVICE void rotate(float& a, float& b, float cosine, float sine) {
  const float low = __fmaf_rn(-b, sine, __fmul_rn(a, cosine));
  b = __fmaf_rn(a, sine, __fmul_rn(b, cosine));
  a = low;
}

// Rotates pairs i … i+3 of a head in place.
DELTAD_DEVICE RotatedPairs rotate_pairs(float* head, const float* angles, int32_t half, int32_t i) {
  auto* low = reinterpret_cast<float4*>(head + i);
  auto* high = reinterpret_cast<float4*>(head + half + i);
  const float4 c = load_global(reinterpret_cast<const float4*>(angles + i));
  const float4 s = load_global(reinterpret_cast<const float4*>(angles + half + i));
  RotatedPairs r = {load_global(low), load_global(high)};
  rotate(r.low.x, r.high.x, c.x, s.x);
  rotate(r.low.y, r.high.y, c.y, s.y);
  rotate(r.low.z, r.high.z, c.z, s.z);
  rotate(r.low.w, r.high.w, c.w, s.w);
  store_global(low, r.low);
  store_global(high, r.high);
  return r;
}

// Dimensions dim … dim+3 of a key.
DELTAD_DEVICE void append_key(uint16_t* part, int32_t token, int32_t dim, float4 k) {
  store_global(reinterpret_cast<uint2*>(part + key_index(token, dim)),
               make_uint2(pack_bf16x2(k.x, k.y), pack_bf16x2(k.z, k.w)));
}

// The same of a value: positions lie side by side, so its dimensions do not.
DELTAD_DEVICE void append_value(uint16_t* part, int32_t token, int32_t dim, int32_t padded_dim,
                                float4 v) {
  const float of[4] = {v.x, v.y, v.z, v.w};
  DELTAD_UNROLL
  for (int32_t i = 0; i < 4; ++i) {
    store_global(part + value_index(token, dim + i, padded_dim),
                 static_cast<uint16_t>(pack_bf16x2(of[i], 0)));
  }
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
