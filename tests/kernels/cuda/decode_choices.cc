#include "tests/kernels/cuda/decode_choices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <tuple>

#include "tests/kernels/cuda/part_of_groups.h"

namespace deltad::cuda {
namespace {

constexpr int kFactors = 7;

constexpr int32_t kRowsList[] = {1, 2, 3, 5, 7, 8, 9, 14, 15, 16, 17, 31, 32, 33, 64, 129};
}  // namespace

const std::vector<WeightShape>& choice_shapes() {
  static const std::vector<WeightShape> all = {
      {{96, 32, 32}, 576}, {{32}, 1536},           {{48, 48}, 576, true}, {{32}, 1792},
      {{20}, 14336},       {{16, 16}, 4096, true}, {{32}, 3584},          {{24}, 28672},
      {{32}, 8192},        {{70, 10}, 300},        {{5, 7}, 250, true},   {{90}, 9}};
  return all;
}

std::vector<int32_t> add_variants(DecodeCase& c, int32_t count, const Choice& choice) {
  const auto of = [&](Factor f) { return choice[static_cast<size_t>(f)]; };
  std::vector<int32_t> slots = {-1};
  for (int32_t v = 0; v < count; ++v) {
    slots.push_back(
        c.add_variant(1 + of(kLevels) - (v % 3 == 1), kAlphaList[of(kAlpha)], of(kOneAlpha) == 1));
  }
  return slots;
}

void expect_oracle(const DecodeCase& c, const std::vector<float>& x,
                   const std::vector<RowGroup>& groups, const DecodeCase::Call& call,
                   const std::vector<float>& out, const std::vector<float>* base) {
  const bool gated = call.epilogue == LinearEpilogue::kSiluGate;
  const int32_t m = groups.back().end_row, outputs = c.widest(groups);
  const int32_t width = gated ? outputs / 2 : outputs;
  const double u = std::ldexp(1, -24);
  ASSERT_EQ(out.size(), static_cast<size_t>(m * width));
  for (int32_t row = 0; row < m; ++row) {
    DecodeCase::Expected want = c.expected(
        x.data() + static_cast<ptrdiff_t>(row) * c.shape().columns, slot_of(groups, row));
    if (base != nullptr) {
      // The kernel adds the levels to the very sum that a row of the base has.
      for (size_t o = 0; o < want.y.size(); ++o) {
        want.y[o] = (*base)[static_cast<size_t>(row) * want.y.size() + o] + want.delta[o];
      }
      want.error = want.delta_error;
    }
    for (int32_t o = 0; o < width; ++o) {
      const auto at = static_cast<size_t>(row * width + o);
      double y, error;
      if (static_cast<size_t>(gated ? 2 * o : o) >= want.y.size()) {
        // Beyond the row's own outputs: as it was.
        if (call.initial != nullptr) {
          ASSERT_EQ(out[at], (*call.initial)[at]) << "row " << row << " output " << o;
        } else {
          ASSERT_TRUE(std::isnan(out[at])) << "row " << row << " output " << o;
        }
        continue;
      }
      if (gated) {
        std::tie(y, error) = gated_expected(want, o);
      } else {
        y = want.y[static_cast<size_t>(o)];
        error = want.error[static_cast<size_t>(o)];
        if (call.epilogue == LinearEpilogue::kAddResidual) {
          y += (*call.initial)[at];
          error += u * (std::abs(y) + error);
        }
      }
      ASSERT_NEAR(out[at], y, error) << "row " << row << " output " << o;
    }
  }
}

// Choices such that every two values of two factors meet in one: of some random choices for an
// uncovered pair, the one that covers most.
std::vector<Choice> pairwise(uint32_t seed) {
  const Choice sizes = {static_cast<int>(std::size(kRowsList)),
                        static_cast<int>(choice_shapes().size()),
                        static_cast<int>(std::size(kVariantsList)),
                        kMaxSignLevels,
                        static_cast<int>(std::size(kAlphaList)),
                        3,
                        2};
  using Pair = std::array<int, 4>;  // factor, value, factor, value
  std::set<Pair> open;
  for (int f = 0; f < kFactors; ++f) {
    for (int g = f + 1; g < kFactors; ++g) {
      for (int v = 0; v < sizes[static_cast<size_t>(f)]; ++v) {
        for (int w = 0; w < sizes[static_cast<size_t>(g)]; ++w) open.insert({f, v, g, w});
      }
    }
  }
  const auto pairs_of = [](const Choice& c) {
    std::vector<Pair> pairs;
    for (int f = 0; f < kFactors; ++f) {
      for (int g = f + 1; g < kFactors; ++g) {
        pairs.push_back({f, c[static_cast<size_t>(f)], g, c[static_cast<size_t>(g)]});
      }
    }
    return pairs;
  };
  std::mt19937 random(seed);
  std::vector<Choice> choices;
  while (!open.empty()) {
    const Pair wanted = *open.begin();
    Choice best{};
    long most = 0;
    for (int attempt = 0; attempt < 40; ++attempt) {
      Choice c;
      for (size_t f = 0; f < kFactors; ++f) {
        c[f] = static_cast<int>(random() % static_cast<unsigned>(sizes[f]));
      }
      c[static_cast<size_t>(wanted[0])] = wanted[1];
      c[static_cast<size_t>(wanted[2])] = wanted[3];
      const std::vector<Pair> pairs = pairs_of(c);
      const long count = std::count_if(pairs.begin(), pairs.end(),
                                       [&](const Pair& pair) { return open.contains(pair); });
      if (count > most) {
        most = count;
        best = c;
      }
    }
    for (const Pair& pair : pairs_of(best)) open.erase(pair);
    choices.push_back(best);
  }
  return choices;
}

void expect_choice(const Choice& choice, uint32_t seed, const Launcher& launcher) {
  const auto of = [&](Factor f) { return choice[static_cast<size_t>(f)]; };
  const int32_t m = kRowsList[of(kRows)];
  DecodeCase c(choice_shapes()[static_cast<size_t>(of(kShape))], seed, launcher);
  const std::vector<int32_t> slots = add_variants(c, kVariantsList[of(kVariants)], choice);
  std::mt19937 random(seed);
  const std::vector<float> x = c.random_rows(m);
  const std::vector<RowGroup> groups = random_groups(m, slots, random);
  std::normal_distribution<float> normal;
  std::vector<float> residual(static_cast<size_t>(m * c.shape().outputs()));
  for (float& v : residual) v = normal(random);
  DecodeCase::Call call;
  call.epilogue = static_cast<LinearEpilogue>(of(kEpilogueFactor));
  call.initial = call.epilogue == LinearEpilogue::kAddResidual ? &residual : nullptr;
  call.options = {
      .order = static_cast<emulator::Order>(seed % 3), .seed = seed, .resident_blocks = 2};
  const DecodeCase::Run run = c.run(x, groups, call);
  ASSERT_TRUE(run.report.ok()) << run.report.text();
  expect_oracle(c, x, groups, call, run.out);
  if (groups.back().slot < 0) return;
  const DecodeCase::Run base = c.run(x, {{0, m, -1}});
  ASSERT_TRUE(base.report.ok()) << base.report.text();
  expect_oracle(c, x, groups, call, run.out, &base.out);
}

void expect_many_groups(const Launcher& launcher) {
  constexpr int32_t kRowCount = 40;
  DecodeCase c({{24}, 300}, 1, launcher);
  const std::vector<int32_t> slots = {-1, c.add_variant(1, 2e-3), c.add_variant(2, 2e-3),
                                      c.add_variant(1, 2e-3), c.add_variant(0, 0)};
  const int32_t dense = c.add_dense(40, 1, 2e-3);
  std::vector<RowGroup> groups;
  for (int32_t r = 0; r < kRowCount; ++r) {
    groups.push_back({r, r + 1, r == 37 ? dense : slots[static_cast<size_t>(r) % slots.size()]});
  }
  static_assert(kRowCount > 32 && kRowCount <= kMaxRowGroups);
  const std::vector<float> x = c.random_rows(kRowCount);
  const DecodeCase::Run run = c.run(x, groups);
  ASSERT_TRUE(run.report.ok()) << run.report.text();
  expect_oracle(c, x, groups, {}, run.out);
}

}  // namespace deltad::cuda
