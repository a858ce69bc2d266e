// Device code: rotary embedding of pairs, and what is appended to the paged cache of a key or
// value.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/kv_cache.h"

namespace deltad::cuda {

struct RotatedPairs {
  float4 low, high;  // of four pairs
};

// a·cos − b·sin, b·cos + a·sin.
DELTAD_DEVICE void rotate(float& a, float& b, float cosine, float sine) {
  const float low = __fmaf_rn(-b, sine, __fmul_rn(a, cosine));
  b = __fmaf_rn(a, sine, __fmul_rn(b, cosine));
  a = low;
}

DELTAD_DEVICE RotatedPairs rotate(RotatedPairs r, float4 cosines, float4 sines) {
  rotate(r.low.x, r.high.x, cosines.x, sines.x);
  rotate(r.low.y, r.high.y, cosines.y, sines.y);
  rotate(r.low.z, r.high.z, cosines.z, sines.z);
  rotate(r.low.w, r.high.w, cosines.w, sines.w);
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

}  // namespace deltad::cuda
