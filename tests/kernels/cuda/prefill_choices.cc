#include "tests/kernels/cuda/prefill_choices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>

namespace deltad::cuda {
namespace {

// As many of each as decode_choices.cc has.
constexpr int32_t kRowsList[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 129, 130};
// A tile costs the same whatever is in it: of long rows, no more than the time allows.
constexpr int32_t kLongColumns = 2048, kMostLongRows = 33;

const WeightShape& shape_of(const Choice& choice) {
  return choice_shapes()[static_cast<size_t>(choice[kShape])];
}

}  // namespace

LinearPrefillKernel prefill_kernel(PrefillFamily family, int32_t levels) {
  std::span<const LinearPrefillKernel> all = kLinearPrefillKernels;
  if (family == PrefillFamily::kWgmma128) all = std::span(kLinearPrefillHopperKernels).last(4);
  if (family == PrefillFamily::kWgmma256) all = std::span(kLinearPrefillHopperKernels).first(4);
  for (const LinearPrefillKernel& kernel : all) {
    if (kernel.levels >= levels) return kernel;
  }
  return {};
}

bool repeats_another(const Choice& choice) {
  return shape_of(choice).columns > kLongColumns && kRowsList[choice[kRows]] > kMostLongRows;
}

void expect_prefill_choice(const Choice& choice, PrefillFamily family, uint32_t seed,
                           const Launcher& launcher) {
  const auto of = [&](Factor f) { return choice[static_cast<size_t>(f)]; };
  const WeightShape& shape = shape_of(choice);
  const int32_t levels = 1 + of(kLevels);
  int32_t m = kRowsList[of(kRows)], variants = kVariantsList[of(kVariants)];
  if (shape.columns > kLongColumns) {
    m = std::min(m, kMostLongRows);
    variants = std::min(variants, 1);
    if (family == PrefillFamily::kWgmma256) family = PrefillFamily::kWgmma128;
  }
  PrefillCase c(shape, seed, launcher);
  DecodeCase& weight = c.weight();
  const std::vector<int32_t> slots = add_variants(weight, variants, choice);
  std::mt19937 random(seed);
  const std::vector<float> x = weight.random_rows(m);
  const std::vector<RowGroup> groups = random_groups(m, slots, random);
  std::normal_distribution<float> normal;
  std::vector<float> residual(static_cast<size_t>(m * weight.shape().outputs()));
  for (float& v : residual) v = normal(random);
  PrefillCase::Call call;
  call.epilogue = static_cast<LinearPrefillEpilogue>(of(kEpilogueFactor));
  call.initial = call.epilogue == LinearPrefillEpilogue::kAddResidual ? &residual : nullptr;
  call.options = {
      .order = static_cast<emulator::Order>(seed % 3), .seed = seed, .resident_blocks = 2};
  const LinearPrefillKernel kernel = prefill_kernel(family, slots.size() > 1 ? levels : 0);
  const DecodeCase::Run run = c.run(x, groups, kernel, call);
  ASSERT_TRUE(run.report.ok()) << run.report.text();
  expect_oracle(c, x, groups, call, run.out);
}

double prefill_delta_error(PrefillFamily family, double alpha, int32_t levels,
                           const Launcher& launcher) {
  constexpr int32_t kRowCount = 4;
  PrefillCase c({{64}, 1024}, 5, launcher);
  const int32_t v = c.weight().add_variant(levels, 0.02 * alpha);
  const std::vector<float> x = c.weight().random_rows(kRowCount);
  const LinearPrefillKernel kernel = prefill_kernel(family, levels);
  const DecodeCase::Run base = c.run(x, {{0, kRowCount, -1}}, kernel);
  const DecodeCase::Run with = c.run(x, {{0, kRowCount, v}}, kernel);
  EXPECT_TRUE(with.report.ok()) << with.report.text();
  double error = 0, size = 0;
  for (int32_t row = 0; row < kRowCount; ++row) {
    const auto want = c.weight().expected(x.data() + static_cast<ptrdiff_t>(row) * 1024, v);
    for (int32_t o = 0; o < 64; ++o) {
      const auto at = static_cast<size_t>(row * 64 + o), output = static_cast<size_t>(o);
      const double delta = double{with.out[at]} - double{base.out[at]};
      error += (delta - want.delta[output]) * (delta - want.delta[output]);
      size += want.delta[output] * want.delta[output];
    }
  }
  return std::sqrt(error / size);
}

}  // namespace deltad::cuda
