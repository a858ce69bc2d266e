// The fit of signs and α against an independent implementation on X itself, and what must hold for
// any input.
#include "calibrate/sign_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "io/safetensors.h"

namespace deltad {
namespace {

struct Stored {
  Shape shape;
  std::vector<float> values;
};

Stored stored(const std::string& name) {
  static const SafetensorsFile file =
      *SafetensorsFile::open(std::string(DELTAD_GOLDEN) + "/calibrate/fits.safetensors");
  const SafetensorsEntry& entry = *file.find(name);
  Stored out{entry.shape, std::vector<float>(static_cast<size_t>(entry.shape.count()))};
  if (entry.dtype == DType::kF32) {
    EXPECT_TRUE(file.read(entry, 0, entry.bytes, out.values.data()).ok());
  } else {
    std::vector<int8_t> bytes(out.values.size());
    EXPECT_TRUE(file.read(entry, 0, entry.bytes, bytes.data()).ok());
    std::copy(bytes.begin(), bytes.end(), out.values.begin());
  }
  return out;
}

std::vector<double> wide(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// ‖X(δ − δ̂)‖² of row r, from X.
double output_error(const std::vector<float>& x, int64_t tokens, const RowsFit& fit, int64_t r) {
  const std::vector<float> left = fit.residual();
  double sum = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    double y = 0;
    for (int64_t c = 0; c < fit.columns; ++c)
      y += static_cast<double>(x[static_cast<size_t>(t * fit.columns + c)]) *
           static_cast<double>(left[static_cast<size_t>(c * fit.rows + r)]);
    sum += y * y;
  }
  return sum;
}

TEST(SignFit, IsTheReference) {
  for (const std::string name : {"tall", "short"}) {
    const Stored x = stored(name + ".x"), delta = stored(name + ".delta");
    const int64_t rows = delta.shape[0], columns = delta.shape[1];
    const GramMatrix gram = gram_matrix(x.values.data(), x.shape[0], columns, 2);
    for (const int levels : {1, 2})
      for (const int sweeps : {0, 1, 3}) {
        const std::string key = name + "." + std::to_string(levels) + "." + std::to_string(sweeps);
        SignFitOptions options;
        options.levels = levels;
        options.sweeps = sweeps;
        const RowsFit fit = fit_rows(gram, rows, wide(delta.values).data(), options);
        const Stored signs = stored(key + ".signs"), alpha = stored(key + ".alpha"),
                     error = stored(key + ".error");
        for (int64_t r = 0; r < rows; ++r) {
          const auto at = static_cast<size_t>(r);
          for (int l = 0; l < levels; ++l) {
            const auto level = static_cast<size_t>(l);
            const float expected = alpha.values[at * static_cast<size_t>(levels) + level];
            EXPECT_NEAR(fit.alpha[level][at], expected, 2e-3f * std::fabs(expected) + 1e-6f)
                << key << " row " << r;
            for (int64_t c = 0; c < columns; ++c)
              EXPECT_EQ(fit.signs[level][static_cast<size_t>(c * rows + r)],
                        signs.values[static_cast<size_t>((r * levels + l) * columns + c)])
                  << key << " row " << r << " column " << c;
          }
          EXPECT_NEAR(fit.error[at], static_cast<double>(error.values[at]),
                      1e-5 * fit.equations[at].energy)
              << key;
        }
      }
  }
}

TEST(SignFit, IsNeverWorseThanTheMeans) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 60; ++round) {
    const int64_t tokens = 1 + static_cast<int64_t>(random() % 50);
    const int64_t columns = 1 + static_cast<int64_t>(random() % 70);
    const int64_t rows = 1 + static_cast<int64_t>(random() % 12);
    std::vector<float> x(static_cast<size_t>(tokens * columns));
    for (float& value : x) value = normal(random);
    // Inputs that are always zero, or always the same.
    for (int64_t t = 0; t < tokens; ++t) {
      x[static_cast<size_t>(t * columns)] = 0;
      if (columns > 2) x[static_cast<size_t>(t * columns + 2)] = 3;
    }
    std::vector<double> delta(static_cast<size_t>(rows * columns));
    for (double& value : delta) value = static_cast<double>(normal(random)) * 0.01;
    for (int64_t c = 0; c < columns; ++c) {
      delta[static_cast<size_t>(c)] = 0;                                               // row 0
      if (rows > 1) delta[static_cast<size_t>(columns + c)] = 0.25;                    // all equal
      if (rows > 2) delta[static_cast<size_t>(2 * columns + c)] = c == 0 ? 1.0 : 0.0;  // one value
    }
    const GramMatrix gram = gram_matrix(x.data(), tokens, columns, 1);
    SignFitOptions options;
    options.levels = 1 + round % 3;
    options.sweeps = round % 4;
    const RowsFit fit = fit_rows(gram, rows, delta.data(), options);
    for (int64_t r = 0; r < rows; ++r) {
      const auto at = static_cast<size_t>(r);
      EXPECT_LE(fit.error[at], fit.plain_error[at]);
      // What it says of itself is so.
      EXPECT_NEAR(fit.error[at], output_error(x, tokens, fit, r),
                  1e-4 * fit.equations[at].energy + 1e-9);
      for (const auto& level : fit.alpha) EXPECT_TRUE(std::isfinite(level[at]));
    }
    for (const auto& level : fit.alpha) EXPECT_EQ(level[0], 0) << "Δ = 0";
    if (rows > 1) {
      EXPECT_NEAR(fit.alpha[0][1], 0.25, 1e-3) << "one sign and α say it all";
    }
  }
}

TEST(SignFit, WithoutActivationsKeepsTheMeans) {
  const std::vector<float> x(5 * 4);
  const std::vector<double> delta = {0.1, -0.2, 0.3, -0.4};
  const RowsFit fit = fit_rows(gram_matrix(x.data(), 5, 4, 1), 1, delta.data(), {.sweeps = 2});
  EXPECT_FLOAT_EQ(fit.alpha[0][0], 0.25f);
  EXPECT_THAT(fit.signs[0], ::testing::ElementsAre(1, -1, 1, -1));
}

TEST(SignFit, SweepsNeverMakeItWorse) {
  const Stored x = stored("tall.x"), delta = stored("tall.delta");
  const GramMatrix gram = gram_matrix(x.values.data(), x.shape[0], x.shape[1], 1);
  double before = 1e300;
  for (const int sweeps : {0, 1, 2, 8}) {
    const RowsFit fit =
        fit_rows(gram, delta.shape[0], wide(delta.values).data(), {.levels = 2, .sweeps = sweeps});
    double error = 0;
    for (const double row : fit.error) error += row;
    EXPECT_LE(error, before);
    before = error;
  }
}

TEST(AlphaEquations, ALevelThatAddsNothingGetsZero) {
  AlphaEquations same;
  same.gram[0][0] = same.gram[0][1] = same.gram[1][0] = same.gram[1][1] = 4;
  same.right[0] = same.right[1] = 2;
  same.energy = 1;
  EXPECT_THAT(same.solve(2), ::testing::ElementsAre(0.5, 0, 0, 0));
  EXPECT_DOUBLE_EQ(same.error(2, same.solve(2)), 0);
}

TEST(GramMatrix, IsTheSameOnAnyNumberOfThreads) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  const int64_t tokens = 37, columns = 300;
  std::vector<float> x(static_cast<size_t>(tokens * columns));
  for (float& value : x) value = normal(random);
  const GramMatrix one = gram_matrix(x.data(), tokens, columns, 1);
  EXPECT_EQ(one.values, gram_matrix(x.data(), tokens, columns, 3).values);
  for (const auto& [i, j] : {std::pair{0, 299}, {150, 3}, {131, 131}}) {
    double sum = 0;
    for (int64_t t = 0; t < tokens; ++t)
      sum += static_cast<double>(x[static_cast<size_t>(t * columns + i)]) *
             static_cast<double>(x[static_cast<size_t>(t * columns + j)]);
    EXPECT_NEAR(one.values[static_cast<size_t>(i * columns + j)], sum, 1e-3);
  }
}

}  // namespace
}  // namespace deltad
