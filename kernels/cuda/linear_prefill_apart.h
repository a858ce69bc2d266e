// For which outputs of a weight the prefill kernels multiply a variant's signs apart from W. Plain
// C++, once for each weight of a variant, at load.
//
// fp16 has 11 digits for W + δ, where δ = ±α of each level: of δ it keeps what is a multiple of the
// last digit at W's size. So what is lost depends on W's exponent alone, and the share of a part
// that its outputs lose is, for signs that W knows nothing of,
//
//    lost² = Σ over weights, mean over signs of (δ − δ rounded)²  /  Σ over weights, mean of δ²
//
// 2.6 % where α is 1 % of mean |W|, and the more the smaller α is. Multiplied apart, α keeps its
// own digits, and the tensor cores work twice as long for these outputs.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/linear_prefill.h"
#include "kernels/cuda/linear_prefill_range.h"

namespace deltad::cuda {

// What a part may lose of the norm of its delta: the 5 % rule of every path.
constexpr double kPrefillMostLost = 0.05;

// A part of a fused weight: where its rows are among the outputs.
struct FusedPart {
  TileRows at;
  int32_t rows;
};

// δ² of an output's weights: what fp16 would lose of it, and all of it.
struct PrefillLoss {
  double lost = 0, all = 0;

  PrefillLoss& operator+=(const PrefillLoss& other) {
    lost += other.lost;
    all += other.all;
    return *this;
  }
  double share() const { return all > 0 ? std::sqrt(lost / all) : 0; }
};

// Weights of an output with the same last digit of fp16.
struct DigitCount {
  double digit, weights;
};

// 2^n of a normal number.
inline double power_of_two(int32_t n) {
  return std::bit_cast<double>(static_cast<uint64_t>(1023 + n) << 52);
}

// counts: of `rows` outputs, which are taken to be alike.
inline std::vector<DigitCount> prefill_digits(const ExponentCounts& counts, int32_t rows,
                                              const WeightRange& range) {
  std::vector<DigitCount> digits;
  digits.reserve(64);
  for (int32_t e = 0; e < 255; ++e) {
    const uint32_t count = counts[static_cast<size_t>(e)];
    if (count == 0) continue;
    // fp16's normal numbers of W · 2^exponent begin at 2^-14, and have ten digits after the first.
    const int32_t scaled = std::max(e - 127 + range.exponent, -14);
    digits.push_back(
        {power_of_two(scaled - 10 - range.exponent), static_cast<double>(count) / rows});
  }
  return digits;
}

// 16 outputs of one part, which are counted together; the same sums for each of them, side by side.
constexpr int32_t kPrefillTile = 16;
using PrefillTile = std::array<double, kPrefillTile>;

// |x| < 2^51, ties to even: what is added leaves no digits behind the point. A loop of these needs
// no call, and runs on vectors.
inline double nearest_integer(double x) {
  constexpr double kShift = 0x1.8p52;
  return (x + kShift) - kShift;
}

// Of 16 outputs of so many columns. alpha: of each level, [16]; only as large as
// prefill_alpha_limit.
inline std::array<PrefillLoss, kPrefillTile> prefill_losses(std::span<const DigitCount> digits,
                                                            int32_t columns,
                                                            std::span<const PrefillTile> alpha) {
  PrefillTile all{}, lost{};
  const size_t choices = size_t{1} << (alpha.size() - 1);  // of signs; the opposite lose as much
  const double share = 1.0 / static_cast<double>(choices);
  for (size_t choice = 0; choice < choices; ++choice) {
    PrefillTile delta = alpha[0];
    for (size_t l = 1; l < alpha.size(); ++l) {
      const double sign = (choice >> (l - 1) & 1) != 0 ? -1 : 1;
      for (size_t o = 0; o < delta.size(); ++o) delta[o] += sign * alpha[l][o];
    }
    for (size_t o = 0; o < delta.size(); ++o) all[o] += share * columns * delta[o] * delta[o];
    for (const DigitCount& d : digits) {
      const double weights = share * d.weights, per_digit = 1 / d.digit;  // a power of two
      for (size_t o = 0; o < delta.size(); ++o) {
        const double in_digits = delta[o] * per_digit;
        const double rest = (in_digits - nearest_integer(in_digits)) * d.digit;
        lost[o] += weights * rest * rest;
      }
    }
  }
  std::array<PrefillLoss, kPrefillTile> losses;
  for (size_t o = 0; o < losses.size(); ++o) losses[o] = {lost[o], all[o]};
  return losses;
}

// An entry for each kApartOutputs outputs: 1 if a part that has rows there loses more than the rule
// allows, a part being judged as a whole. counts[t]: of 16 outputs. alpha: of each level,
// [outputs].
template <class Counts>
std::vector<uint8_t> prefill_apart(const Counts& counts, const WeightRange& range, int32_t columns,
                                   std::span<const FusedPart> parts,
                                   std::span<const float* const> alpha) {
  constexpr int32_t kTile = kPrefillTile;
  const auto outputs = static_cast<int32_t>(counts.size()) * kTile;
  std::vector<uint8_t> apart(static_cast<size_t>(apart_entries(outputs)), 0);
  if (alpha.empty()) return apart;
  std::vector<PrefillTile> own(alpha.size());
  for (const FusedPart& part : parts) {
    const int32_t tiles = (part.rows + kTile - 1) / kTile;
    PrefillLoss loss;
    for (int32_t t = 0; t < tiles; ++t) {
      const int32_t rows = std::min(part.rows - t * kTile, kTile),
                    first = part.at.output_of(t * kTile);
      const auto digits = prefill_digits(counts[static_cast<size_t>(first / kTile)], rows, range);
      for (size_t l = 0; l < own.size(); ++l) std::copy_n(alpha[l] + first, rows, own[l].begin());
      const auto losses = prefill_losses(digits, columns, own);
      for (int32_t r = 0; r < rows; ++r) loss += losses[static_cast<size_t>(r)];
    }
    if (loss.share() <= kPrefillMostLost) continue;
    for (int32_t t = 0; t < tiles; ++t) {
      apart[static_cast<size_t>(part.at.output_of(t * kTile) / kApartOutputs)] = 1;
    }
  }
  return apart;
}

}  // namespace deltad::cuda
