// What the fit of signs does value by value, where it goes a way of its own.
#include "calibrate/strip_kernels.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace deltad {
namespace {

std::vector<Isa> isas() {
  std::vector<Isa> all;
  for (int i = 0; i <= static_cast<int>(best_isa()); ++i) all.push_back(static_cast<Isa>(i));
  return all;
}

// Strips do not know of each other: several at once give what each gives alone.
TEST(StripKernels, ASweepOfManyStripsIsThatOfEach) {
  constexpr int64_t kStrips = 7, kRows = kStrips * kStripRows;
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (const Isa isa : isas())
    for (const int levels : {1, 2})
      for (const int64_t columns : {kSweepColumns, int64_t{29}}) {
        SCOPED_TRACE(std::string(isa_name(isa)) + " " + std::to_string(levels));
        const auto values = [&](int64_t n) {
          std::vector<float> out(static_cast<size_t>(n));
          for (float& v : out) v = normal(random);
          return out;
        };
        const std::vector<float> x = values(kSweepColumns * 100);
        std::vector<float> gram(static_cast<size_t>(kSweepColumns * kSweepColumns));
        for (int64_t i = 0; i < kSweepColumns; ++i)
          for (int64_t j = 0; j < kSweepColumns; ++j)
            for (int64_t t = 0; t < 100; ++t)
              gram[static_cast<size_t>(i * kSweepColumns + j)] +=
                  x[static_cast<size_t>(i * 100 + t)] * x[static_cast<size_t>(j * 100 + t)];
        std::vector<float> gradient = values(kSweepColumns * kRows);
        for (float& v : gradient) v *= 100;
        const std::vector<float> delta = values(kStrips * kSweepColumns * kStripRows);
        std::vector<float> scale(static_cast<size_t>(kRows), 1.0f);
        std::vector<std::vector<float>> alpha, signs;
        for (int l = 0; l < levels; ++l) {
          alpha.emplace_back(scale.size(), l == 0 ? 1.0f : 0.4f);
          signs.push_back(values(kStrips * kSweepColumns * kStripRows));
          for (float& s : signs.back()) s = s > 0 ? 1.0f : -1.0f;
        }
        SweepStep step{};
        step.columns = columns;
        step.gram = gram.data();
        step.damping = 20;
        step.levels = levels;
        step.strip_values = kSweepColumns * kStripRows;
        const auto run = [&](int64_t first, int64_t count, std::vector<std::vector<float>>* of,
                             std::vector<uint16_t>* moved) {
          std::vector<float> part;
          for (int64_t c = 0; c < kSweepColumns; ++c)
            part.insert(part.end(), gradient.begin() + c * kRows + first * kStripRows,
                        gradient.begin() + c * kRows + (first + count) * kStripRows);
          step.strips = count;
          step.gradient = part.data();
          step.scale = scale.data() + first * kStripRows;
          step.delta = delta.data() + first * step.strip_values;
          for (size_t l = 0; l < of->size(); ++l) {
            step.alpha[l] = alpha[l].data() + first * kStripRows;
            step.signs[l] = (*of)[l].data() + first * step.strip_values;
          }
          step.moved = moved->data() + first * step.strip_values;
          return strip_kernels(isa).sweep(step);
        };
        std::vector<std::vector<float>> together = signs, apart = signs;
        std::vector<uint16_t> moved(delta.size()), moved_apart(delta.size());
        EXPECT_TRUE(run(0, kStrips, &together, &moved));
        for (int64_t s = 0; s < kStrips; ++s) run(s, 1, &apart, &moved_apart);
        EXPECT_NE(together, signs);
        EXPECT_EQ(together, apart);
        EXPECT_EQ(moved, moved_apart);
      }
}

}  // namespace
}  // namespace deltad
