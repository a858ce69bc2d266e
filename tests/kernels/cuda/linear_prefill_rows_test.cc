// What goes into the prefill kernels: packed rows, and the power of two of a weight.
#include "kernels/cuda/linear_prefill_rows.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/cuda/linear_prefill_range.h"
#include "tensor/float16.h"
#include "tests/kernels/cuda/mutations.h"
#include "tests/kernels/cuda/weight_range_case.h"
#include "tests/support/cuda_on_cpu/global_memory.h"
#include "tests/support/cuda_on_cpu/launch.h"
#include "tests/support/cuda_on_cpu/vector_types.h"

namespace deltad::cuda {

extern "C" {
void deltad_prefill_rows(PrefillRowsParams p);
void deltad_weight_range(WeightRangeParams p);
}

namespace {

using emulator::Access;
using emulator::DeviceBuffer;
using emulator::launch;
using emulator::Options;
using emulator::Report;

// Columns end within a unit of 8 and within a block of 64; 13 rows are two blocks of threads.
constexpr int32_t kRows = 13, kColumns = 301, kStride = 304;
constexpr RowGroups kGroups = {3, {{0, 3, -1}, {3, 12, 0}, {12, 13, 1}}};
constexpr int32_t kPackedRows = prefill_packed_rows(kRows, 3);

// Normal; with an outlier; all zero; so small that the scale is at its end.
std::vector<uint16_t> rows_in() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> x;
  for (int32_t row = 0; row < kRows; ++row) {
    for (int32_t c = 0; c < kStride; ++c) {
      float v = normal(random) * (row % 3 == 1 && c == 300 ? 90.0f : 1.0f);
      if (row == 4 || c >= kColumns) v = 0;
      if (row == 5) v = std::ldexp(v, -115);
      x.push_back(f32_to_bf16(v));
    }
  }
  return x;
}

struct Packed {
  std::vector<uint16_t> packed;
  std::vector<float> scale;
  bool operator==(const Packed& other) const = default;
};

Packed pack(const Options& options, Report* report) {
  Options overlapping = options;
  overlapping.overlaps_previous = true;
  const DeviceBuffer<uint16_t> x("x", rows_in(), Access::kFresh);
  const DeviceBuffer<RowGroups> groups("groups", std::vector<RowGroups>{kGroups}, Access::kFresh);
  const DeviceBuffer<uint16_t> packed(
      "packed", static_cast<size_t>(8 * prefill_packed_size(kPackedRows, kColumns)),
      Access::kWrite);
  const DeviceBuffer<float> scale("scale", kRows, Access::kWrite);
  const PrefillRowsParams p = {x.data(), groups.data(), packed.data(), scale.data(),
                               kStride,  kRows,         kColumns,      kPackedRows};
  *report = launch(deltad_prefill_rows, prefill_rows_launch(p), p, overlapping);
  return {packed.values(), scale.values()};
}

TEST(PrefillRows, AreInBlocksOf64ColumnsAndExact) {
  Report report;
  const std::vector<uint16_t> x = rows_in();
  const Packed got = pack({}, &report);
  ASSERT_TRUE(report.ok()) << report.text();
  for (int32_t row = 0; row < kRows; ++row) {
    // Groups begin at 0, 8 and 24.
    const int32_t packed = row < 3 ? row : row < 12 ? 8 + row - 3 : 24;
    const float scale = got.scale[static_cast<size_t>(row)];
    EXPECT_EQ(std::ldexp(0.5f, std::ilogb(scale) + 1), scale) << "not a power of two";
    float largest = 0;
    for (int32_t c = 0; c < 5 * 64; ++c) {
      const int32_t unit =
          ((c / 64 * kPackedRows / 8 + packed / 8) * 8 + c % 64 / 8) * 8 + packed % 8;
      const float v = f16_to_f32(got.packed[static_cast<size_t>(unit * 8 + c % 8)]);
      const float want = c < kColumns ? bf16_to_f32(x[static_cast<size_t>(row * kStride + c)]) : 0;
      ASSERT_EQ(v * scale, want) << "row " << row << " column " << c;
      largest = std::max(largest, std::abs(v));
    }
    if (row == 4) continue;  // zeros
    EXPECT_LT(largest, std::ldexp(1, kPrefillRowExponent + 1));
    if (row != 5) {
      EXPECT_GE(largest, std::ldexp(1, kPrefillRowExponent));
    }
  }
  // What lies between two groups is left alone.
  EXPECT_EQ(got.packed[3 * 8], 0xffff);
}

TEST(PrefillRows, EverySiteMatters) { expect_every_site_matters(pack); }

std::vector<uint32_t> count(const Options& options, Report* report) {
  return WeightRangeCase().run([&](const char*, const Launch& shape, const WeightRangeParams& p) {
    *report = launch(deltad_weight_range, shape, p, options);
  });
}

TEST(WeightRange, CountsExponents) {
  Report report;
  const std::vector<uint32_t> got = count({}, &report);
  ASSERT_TRUE(report.ok()) << report.text();
  EXPECT_EQ(got, WeightRangeCase().expected());
}

TEST(WeightRange, EverySiteMatters) { expect_every_site_matters(count); }

TEST(WeightRange, IsThePowerOfTwoThatBringsTheLargestTo2To8) {
  std::vector<ExponentCounts> counts(2);
  EXPECT_EQ(weight_range(counts).exponent, 0);  // all zeros
  counts[0][123] = 5;                           // 2^-4: a weight of 0.1
  counts[1][101] = 3;                           // 22 binades below: exact
  EXPECT_EQ(weight_range(counts).exponent, 12);
  EXPECT_EQ(weight_range(counts).inexact, 0u);
  EXPECT_EQ(prefill_alpha_limit(weight_range(counts)), 8.0f);
  counts[0][100] = 2;
  counts[0][0] = 1;    // subnormal
  counts[1][255] = 4;  // infinite or NaN
  EXPECT_EQ(weight_range(counts).exponent, 12);
  EXPECT_EQ(weight_range(counts).inexact, 7u);
}

TEST(WeightRange, StaysWithinWhatTheKernelsFactorHolds) {
  std::vector<ExponentCounts> all_large(1), small(1);
  ExponentCounts& large = all_large[0];
  large[254] = 1;
  small[0][1] = 1;
  EXPECT_EQ(weight_range(all_large).exponent, -14);
  EXPECT_EQ(weight_range(all_large).inexact, 1u);  // beyond fp16
  EXPECT_EQ(weight_range(small).exponent, 100);
  EXPECT_EQ(prefill_alpha_limit(weight_range(all_large)), 0x1p29f);
  large[127 + 30] = 2;  // 2^30: beyond fp16 too, and the last that is
  large[127 + 29] = 4;
  large[127] = 8;
  large[127 - 1] = 16;  // subnormal in fp16
  EXPECT_EQ(weight_range(all_large).inexact, 1u + 2 + 16);
}

}  // namespace
}  // namespace deltad::cuda
