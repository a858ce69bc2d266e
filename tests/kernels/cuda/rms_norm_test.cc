// RMSNorm on the emulator against the fp64 oracle.
#include "kernels/cuda/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/ref/norm.h"
#include "tensor/float16.h"
#include "tests/kernels/cuda/mutations.h"
#include "tests/support/cuda_on_cpu/global_memory.h"
#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {

extern "C" void deltad_rms_norm(RmsNormParams p);

namespace {

using emulator::Access;
using emulator::DeviceBuffer;
using emulator::Options;
using emulator::Order;
using emulator::Report;

constexpr float kEps = 1e-5f;

// Rows of a base and of two variants; the first has a norm of its own.
struct Case {
  Case(int32_t rows, int32_t columns) : rows(rows), columns(columns) {
    std::mt19937 random(static_cast<unsigned>(rows * 7919 + columns));
    std::normal_distribution<float> normal;
    for (int i = 0; i < rows * columns; ++i) x.push_back(normal(random));
    for (auto* w : {&weight, &own_weight}) {
      for (int i = 0; i < columns; ++i) w->push_back(f32_to_bf16(1 + normal(random) / 2));
    }
    const int32_t a = rows / 3, b = rows - rows / 3;
    groups.group[groups.count++] = {0, a, -1};
    groups.group[groups.count++] = {a, b, 0};
    groups.group[groups.count++] = {b, rows, 1};
  }

  int32_t slot_of(int32_t row) const {
    for (int g = 0; g < groups.count; ++g) {
      if (row < groups.group[g].end_row) return groups.group[g].slot;
    }
    return -1;
  }

  // Rows [first, end) alone; bf16 out [end − first, columns].
  std::vector<uint16_t> run(int32_t first, int32_t end, const Options& options,
                            Report* report) const {
    RowGroups some{};
    for (int g = 0; g < groups.count; ++g) {
      const RowGroup& group = groups.group[g];
      const int32_t from = std::max(group.first_row, first), to = std::min(group.end_row, end);
      if (from < to) some.group[some.count++] = {from - first, to - first, group.slot};
    }
    DeviceBuffer<float> x_buffer(
        "x", std::vector<float>(x.begin() + first * columns, x.begin() + end * columns),
        Access::kFresh);
    DeviceBuffer<uint16_t> w("weight", weight), own("own weight", own_weight);
    DeviceBuffer<const uint16_t*> slots("slots", std::vector<const uint16_t*>{own.data(), nullptr},
                                        Access::kFresh);
    DeviceBuffer<RowGroups> group_buffer("groups", std::vector<RowGroups>{some}, Access::kFresh);
    DeviceBuffer<uint16_t> out("out", static_cast<size_t>((end - first) * columns), Access::kWrite);
    const RmsNormParams p = {x_buffer.data(), w.data(), slots.data(), group_buffer.data(),
                             out.data(),      columns,  columns,      end - first,
                             columns,         kEps};
    Options overlapping = options;
    overlapping.overlaps_previous = true;
    *report = emulator::launch(deltad_rms_norm, rms_norm_launch(p), p, overlapping);
    return out.values();
  }

  int32_t rows, columns;
  std::vector<float> x;
  std::vector<uint16_t> weight, own_weight;
  RowGroups groups{};
};

class RmsNorm : public testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Columns, RmsNorm, testing::Values(4, 64, 576, 1536, 2044, 4096, 8192));

TEST_P(RmsNorm, EqualsTheOracle) {
  const Case c(5, GetParam());
  for (Order order : {Order::kFifo, Order::kLifo, Order::kRandom}) {
    Report report;
    const std::vector<uint16_t> out = c.run(0, c.rows, {.order = order}, &report);
    ASSERT_TRUE(report.ok()) << report.text();
    for (int32_t row = 0; row < c.rows; ++row) {
      const auto& weight = c.slot_of(row) == 0 ? c.own_weight : c.weight;
      const std::vector<double> x(c.x.begin() + row * c.columns,
                                  c.x.begin() + (row + 1) * c.columns);
      std::vector<double> w;
      for (uint16_t v : weight) w.push_back(bf16_to_f32(v));
      const std::vector<double> expected = ref::rms_norm(x, w, kEps);
      // fp32: a thread's chain, five levels of lanes and eight warps, halved by the root; then the
      // quotient, the root and two products. The result is rounded to bf16.
      const double steps = ((c.columns / 256.0 + 4) + 5 + 8) / 2 + 5, u = std::ldexp(1, -24);
      const double gamma = steps * u / (1 - steps * u);
      const double bound = gamma + std::ldexp(1, -8) * (1 + gamma);
      for (int32_t i = 0; i < c.columns; ++i) {
        const double want = expected[static_cast<size_t>(i)];
        EXPECT_NEAR(bf16_to_f32(out[static_cast<size_t>(row * c.columns + i)]), want,
                    bound * std::abs(want))
            << "row " << row << " column " << i;
      }
    }
  }
}

TEST_P(RmsNorm, RowsAloneAreTheSameBits) {
  const Case c(5, GetParam());
  Report report;
  const std::vector<uint16_t> all = c.run(0, c.rows, {}, &report);
  for (int32_t row = 0; row < c.rows; ++row) {
    const std::vector<uint16_t> alone = c.run(row, row + 1, {.order = Order::kRandom}, &report);
    ASSERT_TRUE(report.ok()) << report.text();
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + row * c.columns));
  }
}

TEST(RmsNormSites, AllMatter) {
  const Case c(3, 576);
  expect_every_site_matters(
      [&](const Options& options, Report* report) { return c.run(0, c.rows, options, report); });
}

}  // namespace
}  // namespace deltad::cuda
