// By which power of two a weight's bf16 become fp16 for the prefill kernels. Run once, at load: the
// device counts exponents, the host chooses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"

namespace deltad::cuda {

struct WeightRangeParams {
  const void* w;     // base tiles
  uint32_t* counts;  // [256] weights, but zeros, by the exponent's bits; counted on
  int64_t units;     // of 16 bytes: base_tiles_size
};

constexpr uint32_t kWeightRangeThreads = 256;
constexpr int64_t kWeightRangeBlocks = 264;  // at most
constexpr char kWeightRangeKernel[] = "deltad_weight_range";

inline Launch weight_range_launch(const WeightRangeParams& p) {
  const int64_t blocks = (p.units + kWeightRangeThreads - 1) / kWeightRangeThreads;
  return {{static_cast<uint32_t>(blocks < kWeightRangeBlocks ? blocks : kWeightRangeBlocks)},
          {kWeightRangeThreads},
          256 * 4};
}

// The largest |w| · 2^exponent is in [2^8, 2^9): α may be up to 2^6 of them before a sum leaves
// fp16, and weights down to 2^-22 of the largest keep all their digits. `inexact` counts those
// that do not (smaller ones lose digits, at most 2^-30 of the largest; infinities and NaN; where
// the exponent is at its end, weights of 2^30 and more, which fp16 does not hold).
struct WeightRange {
  float mean = 0;  // of |w|, to some percent
  int32_t exponent = 0;
  uint64_t inexact = 0;
};
constexpr int32_t kPrefillWeightExponent = 8;

constexpr WeightRange weight_range(const std::array<uint32_t, 256>& counts) {
  int32_t largest = 254;
  while (largest > 0 && counts[static_cast<size_t>(largest)] == 0) --largest;
  if (largest == 0) return {0, 0, uint64_t{counts[0]} + counts[255]};
  WeightRange range;
  double sum = 0, total = 0, power = 0x1p-126;
  for (int32_t e = 1; e <= largest; ++e, power *= 2) {
    const double count = counts[static_cast<size_t>(e)];
    sum += 1.5 * power * count;
    total += count;
  }
  range.mean = static_cast<float>(sum / total);
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

// Whether fp16 would lose about 5 % of a variant's part or more if its α were added to W: rounding
// costs 2.6 % where α is 1 % of mean |W|, and the more the smaller α is. alpha: the first level's
// mean. Multiplied apart, α keeps its own digits, and the tensor cores work twice as long.
constexpr bool prefill_apart(const WeightRange& range, float alpha) {
  return alpha < 0.006f * range.mean;
}

// Up to here the sum of a row's levels of α fits beside W.
constexpr float prefill_alpha_limit(const WeightRange& range) {
  float limit = 32768;  // 2^15: half of fp16's range
  for (int32_t i = 0; i < range.exponent; ++i) limit /= 2;
  for (int32_t i = 0; i > range.exponent; --i) limit *= 2;
  return limit;
}

}  // namespace deltad::cuda
