// Which outputs of a weight have a variant's signs multiplied apart: what fp16 is said to lose of a
// variant is what it loses, and each part of a fused weight is judged by itself.
#include "kernels/cuda/linear_prefill_apart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tensor/float16.h"
#include "tests/kernels/cuda/prefill_case.h"

namespace deltad::cuda {
namespace {

constexpr int32_t kColumns = 2048;

// Weights of mean |W| 0.02 for so many tiles of 16 outputs, and their counts.
struct Weights {
  explicit Weights(size_t tiles) : counts(tiles) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0, 0.025f);
    for (size_t i = 0; i < tiles * 16 * kColumns; ++i) {
      const uint16_t bits = f32_to_bf16(normal(random));
      w.push_back(bf16_to_f32(bits));
      ++counts[i / (16 * kColumns)][bits >> 7 & 0xff];
    }
    range = weight_range(counts);
  }
  std::vector<float> w;  // [outputs, columns]
  std::vector<ExponentCounts> counts;
  WeightRange range;
};

// The same alpha, [levels], for each of 16 outputs, and the sum over them.
PrefillLoss loss_of(std::span<const DigitCount> digits, int32_t columns,
                    const std::vector<float>& alpha) {
  std::vector<PrefillTile> tile(alpha.size());
  for (size_t l = 0; l < alpha.size(); ++l) tile[l].fill(alpha[l]);
  PrefillLoss sum;
  for (const PrefillLoss& loss : prefill_losses(digits, columns, tile)) sum += loss;
  return sum;
}

// Of one output, as it is defined, in the same order.
PrefillLoss defined_loss(std::span<const DigitCount> digits, int32_t columns,
                         const std::vector<float>& alpha) {
  PrefillLoss loss;
  const size_t choices = size_t{1} << (alpha.size() - 1);
  const double share = 1.0 / static_cast<double>(choices);
  for (size_t choice = 0; choice < choices; ++choice) {
    double delta = double{alpha[0]};
    for (size_t l = 1; l < alpha.size(); ++l)
      delta += (choice >> (l - 1) & 1) != 0 ? -double{alpha[l]} : double{alpha[l]};
    loss.all += share * columns * delta * delta;
    for (const DigitCount& d : digits) {
      const double lost = delta - std::nearbyint(delta / d.digit) * d.digit;
      loss.lost += share * d.weights * lost * lost;
    }
  }
  return loss;
}

TEST(PrefillLoss, OfSixteenOutputsIsThatOfEachToTheBit) {
  const Weights all(1);
  const auto digits = prefill_digits(all.counts[0], 16, all.range);
  EXPECT_GT(digits.size(), 8u);
  std::mt19937 random(5);
  std::lognormal_distribution<float> alpha(std::log(1e-4f), 3);
  for (size_t levels = 1; levels <= 4; ++levels) {
    std::vector<PrefillTile> tile(levels);
    for (PrefillTile& level : tile)
      for (double& a : level) a = alpha(random);
    tile[0][3] = 1.5 * digits[4].digit;  // half-way: to the even one
    const auto losses = prefill_losses(digits, kColumns, tile);
    for (size_t o = 0; o < losses.size(); ++o) {
      std::vector<float> own;
      for (const PrefillTile& level : tile) own.push_back(static_cast<float>(level[o]));
      const PrefillLoss expected = defined_loss(digits, kColumns, own);
      EXPECT_EQ(losses[o].lost, expected.lost) << levels << " levels, output " << o;
      EXPECT_EQ(losses[o].all, expected.all);
    }
  }
}

TEST(PrefillLoss, IsWhatFp16Loses) {
  const Weights all(1);
  std::mt19937 random(4);
  const auto digits = prefill_digits(all.counts[0], 16, all.range);
  for (const std::vector<float>& alpha : std::vector<std::vector<float>>{
           {2e-3f}, {2e-4f}, {1e-4f}, {2e-5f}, {1.5e-4f, 4e-5f}, {2e-4f, 6e-5f, 2e-5f}}) {
    double lost = 0, size = 0;
    for (const float w : all.w) {
      double delta = 0;
      for (const float a : alpha) delta += random() % 2 == 1 ? a : -a;
      const int32_t s = all.range.exponent;
      const double sum = std::ldexp(rounded_to_f16(std::ldexp(w + delta, s)), -s);
      lost += (sum - w - delta) * (sum - w - delta);
      size += delta * delta;
    }
    const PrefillLoss loss = loss_of(digits, kColumns, alpha);
    // Not foreseen: that a sum may cross into the next binade.
    EXPECT_NEAR(loss.share(), std::sqrt(lost / size), 0.03 * std::sqrt(lost / size)) << alpha[0];
  }
}

TEST(PrefillLoss, OfNoDeltaOrOfWeightsThatAreZeroIsNothing) {
  const Weights all(1);
  EXPECT_EQ(loss_of(prefill_digits(all.counts[0], 16, all.range), 64, {0}).share(), 0);
  EXPECT_EQ(loss_of(prefill_digits({}, 16, all.range), 64, {1e-6f}).share(), 0);
}

TEST(PrefillApart, IsDecidedForEachPart) {
  const Weights all(12);
  std::vector<float> alpha(192, 1e-3f);
  const float* levels[] = {alpha.data()};
  const auto apart = [&](std::span<const FusedPart> parts) {
    return prefill_apart(all.counts, all.range, kColumns, parts, levels);
  };
  const FusedPart qkv[] = {{{0, 1}, 64}, {{4, 1}, 32}, {{6, 1}, 92}};
  const FusedPart gate_up[] = {{{0, 2}, 96}, {{1, 2}, 96}};
  using Flags = std::vector<uint8_t>;
  EXPECT_EQ(apart(qkv), (Flags{0, 0, 0}));
  EXPECT_EQ(apart(gate_up), (Flags{0, 0, 0}));
  // k's outputs 64 … 95 share their 64 with the first of v's. The mean over all is ten times what
  // fp16 needs.
  std::fill(alpha.begin() + 64, alpha.begin() + 96, 2e-5f);
  EXPECT_EQ(apart(qkv), (Flags{0, 1, 0}));
  EXPECT_EQ(apart(gate_up), (Flags{0, 0, 0})) << "a few rows among many";
  for (size_t o = 0; o < alpha.size(); ++o) alpha[o] = o / 16 % 2 == 0 ? 1e-3f : 2e-5f;
  EXPECT_EQ(apart(gate_up), (Flags{1, 1, 1}));
  // What no part has, in the last of v's tiles, does not count.
  std::fill(alpha.begin(), alpha.end(), 1e-3f);
  std::fill(alpha.begin() + 188, alpha.end(), 1e-6f);
  EXPECT_EQ(apart(qkv), (Flags{0, 0, 0}));
  EXPECT_EQ(prefill_apart(all.counts, all.range, kColumns, qkv, {}), (Flags{0, 0, 0}));
}

}  // namespace
}  // namespace deltad::cuda
