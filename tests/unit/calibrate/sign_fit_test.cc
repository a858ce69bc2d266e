// The fit of signs and α against an independent implementation on X itself, and what must hold for
// any input.
#include "calibrate/sign_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "delta/float_codec.h"
#include "io/safetensors.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

struct Stored {
  Shape shape;
  std::vector<float> values;
};

Stored stored(const std::string& name) {
  static const SafetensorsFile file =
      *SafetensorsFile::open(DELTAD_GOLDEN "/calibrate/fits.safetensors");
  const SafetensorsEntry& entry = *file.find(name);
  Stored out{entry.shape, std::vector<float>(static_cast<size_t>(entry.shape.count()))};
  std::vector<uint8_t> bytes(static_cast<size_t>(entry.bytes));
  EXPECT_TRUE(file.read(entry, 0, entry.bytes, bytes.data()).ok());
  if (is_float(entry.dtype)) {
    widen(entry.dtype, entry.shape.count(), bytes.data(), out.values.data());
  } else {
    std::transform(bytes.begin(), bytes.end(), out.values.begin(),
                   [](uint8_t byte) { return static_cast<int8_t>(byte); });
  }
  return out;
}

std::vector<double> wide(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

std::vector<Isa> isas() {
  std::vector<Isa> all;
  for (int i = 0; i <= static_cast<int>(best_isa()); ++i) all.push_back(static_cast<Isa>(i));
  return all;
}

FitInput input_of(Isa isa, const std::vector<float>& x, int64_t tokens, int64_t columns) {
  std::vector<uint16_t> narrow(x.size());
  std::transform(x.begin(), x.end(), narrow.begin(), [](float v) { return f32_to_bf16(v); });
  const bool wide = RowProducts::type(isa) == DType::kF32;
  auto made = FitInput::make(isa, wide ? static_cast<const void*>(x.data()) : narrow.data(), tokens,
                             columns);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(*made);
}

double sign(const RowsFit& fit, size_t level, int64_t row, int64_t column) {
  return static_cast<double>(fit.signs[level][fit.at(row, column)]);
}

// ‖X(δ − δ̂)‖² of row r, from X.
double output_error(const std::vector<float>& x, int64_t tokens, const std::vector<double>& delta,
                    const RowsFit& fit, int64_t r) {
  std::vector<double> left(delta.begin() + r * fit.columns, delta.begin() + (r + 1) * fit.columns);
  for (size_t l = 0; l < fit.signs.size(); ++l)
    for (int64_t c = 0; c < fit.columns; ++c)
      left[static_cast<size_t>(c)] -=
          static_cast<double>(fit.alpha[l][static_cast<size_t>(r)]) * sign(fit, l, r, c);
  double sum = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    double y = 0;
    for (int64_t c = 0; c < fit.columns; ++c)
      y += static_cast<double>(x[static_cast<size_t>(t * fit.columns + c)]) *
           left[static_cast<size_t>(c)];
    sum += y * y;
  }
  return sum;
}

TEST(SignFit, IsTheReference) {
  FitScratch scratch;
  const RowsFit& fit = scratch.fit;
  for (const Isa isa : isas())
    for (const std::string name : {"tall", "short", "wide"}) {
      const Stored x = stored(name + ".x"), delta = stored(name + ".delta");
      const int64_t rows = delta.shape[0], columns = delta.shape[1];
      const FitInput input = input_of(isa, x.values, x.shape[0], columns);
      for (const int levels : {1, 2, 3})
        for (const int sweeps : {0, 1, 3}) {
          const std::string key =
              name + "." + std::to_string(levels) + "." + std::to_string(sweeps);
          SCOPED_TRACE(std::string(isa_name(isa)) + " " + key);
          SignFitOptions options;
          options.levels = levels;
          options.sweeps = sweeps;
          options.damping = sweeps == 1 ? 5 : 0.01;  // compress takes 5
          fit_rows(input, rows, wide(delta.values).data(), options, &scratch);
          const Stored signs = stored(key + ".signs"), alpha = stored(key + ".alpha"),
                       error = stored(key + ".error");
          int64_t same = 0;
          for (int64_t r = 0; r < rows; ++r) {
            const auto at = static_cast<size_t>(r);
            int64_t same_of_row = 0;
            for (int l = 0; l < levels; ++l)
              for (int64_t c = 0; c < columns; ++c)
                same_of_row +=
                    sign(fit, static_cast<size_t>(l), r, c) ==
                    static_cast<double>(
                        signs.values[static_cast<size_t>((r * levels + l) * columns + c)]);
            same += same_of_row;
            // A choice so close that fp32 makes it otherwise changes those after it too.
            if (same_of_row < levels * columns) continue;
            for (int l = 0; l < levels; ++l) {
              const float expected = alpha.values[static_cast<size_t>(r * levels + l)];
              EXPECT_NEAR(fit.alpha[static_cast<size_t>(l)][at], expected,
                          2e-3f * std::fabs(expected) + 1e-6f)
                  << "row " << r;
            }
            EXPECT_NEAR(fit.error[at], static_cast<double>(error.values[at]),
                        1e-5 * fit.equations[at].energy);
          }
          EXPECT_GE(same, rows * levels * columns * 995 / 1000);
        }
    }
}

TEST(SignFit, IsNeverWorseThanTheMeans) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const auto any = [&] { return bf16_to_f32(f32_to_bf16(normal(random))); };
  FitScratch scratch;
  const RowsFit& fit = scratch.fit;
  const std::vector<Isa> all = isas();
  for (size_t round = 0; round < 60; ++round) {
    const int64_t tokens = 1 + static_cast<int64_t>(random() % 50);
    const int64_t columns = 1 + static_cast<int64_t>(random() % 90);
    const int64_t rows = 1 + static_cast<int64_t>(random() % 20);
    std::vector<float> x(static_cast<size_t>(tokens * columns));
    for (float& value : x) value = any();
    // Inputs that are always zero, or always the same.
    for (int64_t t = 0; t < tokens; ++t) {
      x[static_cast<size_t>(t * columns)] = 0;
      if (columns > 2) x[static_cast<size_t>(t * columns + 2)] = 3;
    }
    std::vector<double> delta(static_cast<size_t>(rows * columns));
    for (double& value : delta) value = static_cast<double>(any()) * 0.0078125;
    for (int64_t c = 0; c < columns; ++c) {
      delta[static_cast<size_t>(c)] = 0;                                               // row 0
      if (rows > 1) delta[static_cast<size_t>(columns + c)] = 0.25;                    // all equal
      if (rows > 2) delta[static_cast<size_t>(2 * columns + c)] = c == 0 ? 1.0 : 0.0;  // one value
    }
    const FitInput input = input_of(all[round % all.size()], x, tokens, columns);
    SignFitOptions options;
    options.levels = 1 + static_cast<int>(round % 3);
    options.sweeps = static_cast<int>(round % 4);
    fit_rows(input, rows, delta.data(), options, &scratch);
    for (int64_t r = 0; r < rows; ++r) {
      const auto at = static_cast<size_t>(r);
      EXPECT_LE(fit.error[at], fit.plain_error[at]);
      // What it says of itself is so.
      EXPECT_NEAR(fit.error[at], output_error(x, tokens, delta, fit, r),
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
  FitScratch scratch;
  fit_rows(input_of(best_isa(), x, 5, 4), 1, delta.data(), {.sweeps = 2}, &scratch);
  EXPECT_FLOAT_EQ(scratch.fit.alpha[0][0], 0.25f);
  for (int64_t c = 0; c < 4; ++c) EXPECT_EQ(sign(scratch.fit, 0, 0, c), c % 2 == 0 ? 1 : -1);
}

TEST(SignFit, SweepsNeverMakeItWorse) {
  const Stored x = stored("tall.x"), delta = stored("tall.delta");
  const FitInput input = input_of(best_isa(), x.values, x.shape[0], x.shape[1]);
  FitScratch scratch;
  double before = 1e300;
  for (const int sweeps : {0, 1, 2, 8}) {
    fit_rows(input, delta.shape[0], wide(delta.values).data(), {.levels = 2, .sweeps = sweeps},
             &scratch);
    double error = 0;
    for (const double row : scratch.fit.error) error += row;
    EXPECT_LE(error, before);
    before = error;
  }
}

TEST(SignFit, NamesTheRowOfAValueThatIsNone) {
  const std::vector<float> x(4 * 3, 1.0f);
  for (const double bad : {std::nan(""), HUGE_VAL, -1e39}) {
    std::vector<double> delta(20 * 3, 0.5);
    delta[17 * 3 + 1] = bad;
    FitScratch scratch;
    fit_rows(input_of(best_isa(), x, 4, 3), 20, delta.data(), {}, &scratch);
    EXPECT_EQ(scratch.fit.bad_row, 17);
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

}  // namespace
}  // namespace deltad
