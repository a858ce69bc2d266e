// By which power of two a weight's bf16 become fp16 for the prefill kernels. Run once, at load: the
// device counts exponents, the host chooses. linear_prefill_apart.h asks the same counts what fp16
// would lose of a variant.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear_tiles.h"

namespace deltad::cuda {

struct WeightRangeParams {
  const void* w;     // base tiles
  uint32_t* counts;  // [outputs / 16, 256] weights, but zeros, by the exponent's bits
  int32_t outputs;   // a multiple of 16
  int32_t columns;
};

constexpr uint32_t kWeightRangeThreads = 256;
constexpr char kWeightRangeKernel[] = "deltad_weight_range";

// 16-byte units of 16 outputs: two tiles.
DELTAD_HOST_DEVICE constexpr int32_t weight_range_units(int32_t columns) {
  return 2 * chunks_of(columns) * kChunkSteps * 32;
}
// A block 16 outputs: they are of one part of a fused weight.
inline Launch weight_range_launch(const WeightRangeParams& p) {
  return {{static_cast<uint32_t>(p.outputs / 16)}, {kWeightRangeThreads}, 256 * 4};
}

// Of 16 outputs, as the kernel counts them.
using ExponentCounts = std::array<uint32_t, 256>;

// The largest |w| · 2^exponent is in [2^8, 2^9): α may be up to 2^6 of them before a sum leaves
// fp16, and weights down to 2^-22 of the largest keep all their digits. `inexact` counts those
// that do not (smaller ones lose digits, at most 2^-30 of the largest; infinities and NaN; where
// the exponent is at its end, weights of 2^30 and more, which fp16 does not hold).
struct WeightRange {
  int32_t exponent = 0;
  uint64_t inexact = 0;
};
constexpr int32_t kPrefillWeightExponent = 8;

constexpr WeightRange weight_range(std::span<const ExponentCounts> parts) {
  std::array<uint64_t, 256> counts{};
  for (const ExponentCounts& part : parts) {
    for (size_t e = 0; e < counts.size(); ++e) counts[e] += part[e];
  }
  int32_t largest = 254;
  while (largest > 0 && counts[static_cast<size_t>(largest)] == 0) --largest;
  if (largest == 0) return {0, counts[0] + counts[255]};
  WeightRange range;
  range.exponent = kPrefillWeightExponent - (largest - 127);
  // What the kernel's factor, a bf16, and 2^±exponent in fp32 allow.
  if (range.exponent < -14) range.exponent = -14;
  if (range.exponent > 100) range.exponent = 100;
  for (int32_t e = 0; e < 256; ++e) {
    const int32_t scaled = e - 127 + range.exponent;  // fp16's normal exponents: -14 … 15
    const bool normal = e > 0 && e < 255 && scaled >= -14 && scaled <= 15;
    if (!normal) range.inexact += counts[static_cast<size_t>(e)];
  }
  return range;
}

// Up to here the sum of a row's levels of α fits beside W.
constexpr float prefill_alpha_limit(const WeightRange& range) {
  float limit = 32768;  // 2^15: half of fp16's range
  for (int32_t i = 0; i < range.exponent; ++i) limit /= 2;
  for (int32_t i = 0; i > range.exponent; --i) limit *= 2;
  return limit;
}

}  // namespace deltad::cuda
