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
  if (family == PrefillFamily::kWgmma192) {
    all = std::span(kLinearPrefillHopperKernels).subspan(4, levels > 1 ? 0 : 2);
    if (all.empty()) family = PrefillFamily::kWgmma128;
  }
  if (family == PrefillFamily::kWgmma128) all = std::span(kLinearPrefillHopperKernels).last(4);
  if (family == PrefillFamily::kWgmma256) all = std::span(kLinearPrefillHopperKernels).first(4);
  for (const LinearPrefillKernel& kernel : all) {
    if (kernel.levels >= levels) return kernel;
  }
  return {};
}

LinearPrefillKernel in_clusters(LinearPrefillKernel kernel, int32_t outputs, int32_t most) {
  const int32_t blocks = (outputs + kernel.outputs - 1) / kernel.outputs;
  for (int32_t cluster = 2; cluster <= std::min(most, kernel.most_cluster); cluster *= 2) {
    if (blocks % cluster == 0) kernel.cluster = cluster;
  }
  return kernel;
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
    if (family != PrefillFamily::kMma) family = PrefillFamily::kWgmma128;
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
  const LinearPrefillKernel kernel = in_clusters(
      prefill_kernel(family, slots.size() > 1 ? levels : 0), weight.shape().outputs(), 4);
  const DecodeCase::Run run = c.run(x, groups, kernel, call);
  ASSERT_TRUE(run.report.ok()) << run.report.text();
  expect_oracle(c, x, groups, call, run.out);
}

void expect_many_long_rows(PrefillFamily family, int32_t columns, const Launcher& launcher) {
  constexpr int32_t kRowCount = 145;
  PrefillCase c({{16}, columns}, 6, launcher);
  const int32_t beside = c.weight().add_variant(1, 1e-3), apart = c.weight().add_variant(1, 2e-5);
  ASSERT_NE(c.apart(beside), c.apart(apart));
  const std::vector<float> x = c.weight().random_rows(kRowCount);
  const std::vector<RowGroup> groups = {{0, 9, apart}, {9, kRowCount, beside}};
  const DecodeCase::Run run = c.run(x, groups, prefill_kernel(family, 1));
  ASSERT_TRUE(run.report.ok()) << run.report.text();
  expect_oracle(c, x, groups, {}, run.out);
}

std::vector<double> prefill_part_errors(PrefillCase& c, int32_t slot,
                                        const LinearPrefillKernel& kernel) {
  constexpr int32_t kRowCount = 4;
  const WeightShape& shape = c.weight().shape();
  const std::vector<float> x = c.weight().random_rows(kRowCount);
  const DecodeCase::Run base = c.run(x, {{0, kRowCount, -1}}, kernel);
  const DecodeCase::Run with = c.run(x, {{0, kRowCount, slot}}, kernel);
  EXPECT_TRUE(with.report.ok()) << with.report.text();
  std::vector<double> error(shape.part_rows.size()), size(shape.part_rows.size());
  for (int32_t row = 0; row < kRowCount; ++row) {
    const auto want =
        c.weight().expected(x.data() + static_cast<ptrdiff_t>(row) * shape.columns, slot);
    for (size_t p = 0; p < error.size(); ++p) {
      for (int32_t r = 0; r < shape.part_rows[p]; ++r) {
        const auto output = static_cast<size_t>(shape.output_of(p, r));
        const size_t at = static_cast<size_t>(row * shape.outputs()) + output;
        const double delta = double{with.out[at]} - double{base.out[at]};
        error[p] += (delta - want.delta[output]) * (delta - want.delta[output]);
        size[p] += want.delta[output] * want.delta[output];
      }
    }
  }
  for (size_t p = 0; p < error.size(); ++p) error[p] = std::sqrt(error[p] / size[p]);
  return error;
}

double prefill_delta_error(PrefillFamily family, double alpha, int32_t levels,
                           const Launcher& launcher) {
  PrefillCase c({{64}, 1024}, 5, launcher);
  const int32_t v = c.weight().add_variant(levels, 0.02 * alpha);
  return prefill_part_errors(c, v, prefill_kernel(family, levels))[0];
}

}  // namespace deltad::cuda
