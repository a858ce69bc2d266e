// Device code: two floats as pairs of bf16, rounded and what rounding left over. So a bf16 mma over
// both keeps 16 bits of them.
#pragma once

#include "kernels/cuda/device.h"

namespace deltad::cuda {

struct SplitPair {
  uint32_t upper, lower;
};

DELTAD_DEVICE SplitPair split_bf16(float a, float b) {
  const uint32_t upper = pack_bf16x2(a, b);
  return {upper, pack_bf16x2(a - low_bf16(upper), b - high_bf16(upper))};
}

}  // namespace deltad::cuda
