// Device code that both kernels of attention use.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/kv_cache.h"

namespace deltad::cuda {

constexpr float kNoScore = -INFINITY;

// A lane's 16 bytes of values (kv_cache.h) with zeros for positions of the block from `tokens` on:
// what a sequence has not written may be anything, and a weight of 0 does not stop a NaN.
DELTAD_DEVICE uint4 first_tokens(uint4 v, int32_t lane, int32_t tokens) {
  const int32_t first = lane % 4 * 4;
  const auto pair = [=](int32_t token) {
    return (tokens > token ? 0xffffu : 0u) | (tokens > token + 1 ? 0xffff0000u : 0u);
  };
  const uint32_t low = pair(first), high = pair(first + 2);
  return make_uint4(v.x & low, v.y & high, v.z & low, v.w & high);
}

// The position in its block of a lane's element e (0, 1) of a score tile's half.
DELTAD_DEVICE int32_t token_of(int32_t lane, int32_t half, int32_t e) {
  return lane % 4 * 4 + 2 * half + e;
}

// Over the four lanes that share a row of an accumulator.
DELTAD_DEVICE float max_of_row(float v) {
  v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, 1));
  return fmaxf(v, __shfl_xor_sync(kAllLanes, v, 2));
}
DELTAD_DEVICE float sum_of_row(float v) {
  v = __fadd_rn(v, __shfl_xor_sync(kAllLanes, v, 1));
  return __fadd_rn(v, __shfl_xor_sync(kAllLanes, v, 2));
}

}  // namespace deltad::cuda
