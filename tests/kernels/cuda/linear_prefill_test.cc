// The prefill kernels on the emulator against the fp64 oracle, over awkward shapes.
#include "kernels/cuda/linear_prefill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/cuda/mutations.h"
#include "tests/kernels/cuda/prefill_case.h"

namespace deltad::cuda {
namespace {

using emulator::Options;
using emulator::Order;

std::vector<LinearPrefillKernel> all_kernels() {
  std::vector<LinearPrefillKernel> all(std::begin(kLinearPrefillKernels),
                                       std::end(kLinearPrefillKernels));
  all.insert(all.end(), std::begin(kLinearPrefillHopperKernels),
             std::end(kLinearPrefillHopperKernels));
  return all;
}

class LinearPrefill : public testing::TestWithParam<LinearPrefillKernel> {};
INSTANTIATE_TEST_SUITE_P(Kernels, LinearPrefill, testing::ValuesIn(all_kernels()),
                         [](const auto& kernel) { return std::string(kernel.param.name + 7); });

TEST_P(LinearPrefill, Smoke) {
  PrefillCase c({{40, 40}, 300, true});
  std::vector<int32_t> slots = {-1};
  for (int l = 1; l <= GetParam().levels; ++l) slots.push_back(c.weight().add_variant(l, 2e-3));
  const std::vector<float> x = c.weight().random_rows(50);
  std::mt19937 random(3);
  const std::vector<RowGroup> groups = random_groups(50, slots, random);
  for (LinearEpilogue e : {LinearEpilogue::kStore, LinearEpilogue::kSiluGate}) {
    const PrefillCase::Call call = {.epilogue = e};
    const auto run = c.run(x, groups, GetParam(), call);
    ASSERT_TRUE(run.report.ok()) << run.report.text();
    expect_oracle(c, x, groups, call, run.out);
  }
}

}  // namespace
}  // namespace deltad::cuda
