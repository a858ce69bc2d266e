// What goes into the decode kernel, element by element as linear_tiles.h says: repacked weights and
// bit planes of activations.
#include "kernels/cuda/repack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/cuda/sign_planes.h"
#include "tensor/float16.h"
#include "tests/kernels/cuda/mutations.h"
#include "tests/support/cuda_on_cpu/global_memory.h"
#include "tests/support/cuda_on_cpu/launch.h"
#include "tests/support/cuda_on_cpu/vector_types.h"

namespace deltad::cuda {

extern "C" {
void deltad_repack_base(RepackBaseParams p);
void deltad_repack_signs(RepackSignsParams p);
void deltad_sign_planes(SignPlanesParams p);
}

namespace {

using emulator::Access;
using emulator::DeviceBuffer;
using emulator::launch;
using emulator::Options;
using emulator::Report;

// A part of 21 rows, the second of two that take turns, so that it lies in outputs 16-31 and 48-63;
// its columns end within a pair, a byte, a step and a chunk.
constexpr int32_t kRows = 21, kColumns = 301, kOutputs = 64;
constexpr TileRows kPlace = {1, 2};

int32_t output_of(int32_t row) { return 16 * (1 + 2 * (row / 16)) + row % 16; }

std::vector<uint16_t> base_in() {
  std::vector<uint16_t> in;
  for (int32_t i = 0; i < kRows * kColumns; ++i) in.push_back(static_cast<uint16_t>(1 + i));
  return in;
}

std::vector<uint16_t> repack_base(const Options& options, Report* report) {
  const DeviceBuffer<uint16_t> in("in", base_in());
  const DeviceBuffer<uint16_t> out(
      "out", static_cast<size_t>(8 * base_tiles_size(kOutputs, kColumns)), Access::kWrite);
  const RepackBaseParams p = {in.data(), out.data(), kRows, kColumns, kPlace};
  *report = launch(deltad_repack_base, repack_base_launch(p), p, options);
  return out.values();
}

TEST(RepackBase, PutsEachElementInItsFragment) {
  Report report;
  const std::vector<uint16_t> in = base_in(), out = repack_base({}, &report);
  ASSERT_TRUE(report.ok()) << report.text();
  const int32_t chunks = chunks_of(kColumns);
  for (int32_t row = 0; row < 32; ++row) {
    for (int32_t c = 0; c < chunks * kChunk; ++c) {
      const int32_t o = output_of(row), step = c % kChunk / kStep, k = c % kStep;
      const int32_t lane = o % 8 * 4 + k % 8 / 2, element = k / 8 * 2 + k % 2;
      const int32_t at =
          (((o / 8 * chunks + c / kChunk) * kChunkSteps + step) * 32 + lane) * 8 + element;
      const bool there = row < kRows && c < kColumns;
      ASSERT_EQ(out[static_cast<size_t>(at)],
                there ? in[static_cast<size_t>(row * kColumns + c)] : 0)
          << "row " << row << " column " << c;
    }
  }
  // The other part's tiles are left alone.
  EXPECT_EQ(out[0], 0xffff);
}

TEST(RepackBase, EverySiteMatters) { expect_every_site_matters(repack_base); }

std::vector<uint8_t> signs_in() {
  std::mt19937 random(2);
  std::vector<uint8_t> in;
  for (int32_t row = 0; row < kRows; ++row) {
    for (int32_t byte = 0; byte < (kColumns + 7) / 8; ++byte) {
      const bool last = byte == kColumns / 8;
      in.push_back(static_cast<uint8_t>(random()) & (last ? (1u << kColumns % 8) - 1 : 0xff));
    }
  }
  return in;
}

std::vector<uint32_t> repack_signs(const Options& options, Report* report) {
  const DeviceBuffer<uint8_t> in("in", signs_in());
  const DeviceBuffer<uint32_t> out(
      "out", static_cast<size_t>(2 * sign_tiles_size(kOutputs, kColumns)), Access::kWrite);
  const RepackSignsParams p = {in.data(), out.data(), kRows, kColumns, kPlace};
  *report = launch(deltad_repack_signs, repack_signs_launch(p), p, options);
  return out.values();
}

TEST(RepackSigns, PutsEachBitInItsFragment) {
  Report report;
  const std::vector<uint8_t> in = signs_in();
  const std::vector<uint32_t> out = repack_signs({}, &report);
  ASSERT_TRUE(report.ok()) << report.text();
  const int32_t chunks = chunks_of(kColumns);
  for (int32_t row = 0; row < 32; ++row) {
    for (int32_t c = 0; c < chunks * kChunk; ++c) {
      const int32_t o = output_of(row), k = c % kChunk;
      const int32_t lane = o % 8 * 4 + k % 128 / 32;
      const auto at =
          static_cast<size_t>(((o / 8 * chunks + c / kChunk) * 32 + lane) * 2 + k / 128);
      const bool there = row < kRows && c < kColumns;
      const auto byte = static_cast<size_t>(row * ((kColumns + 7) / 8) + c / 8);
      ASSERT_EQ(out[at] >> (k % 32) & 1, there ? in[byte] >> (c % 8) & 1u : 0u)
          << "row " << row << " column " << c;
    }
  }
}

TEST(RepackSigns, EverySiteMatters) { expect_every_site_matters(repack_signs); }

struct Planes {
  std::vector<uint32_t> planes;
  std::vector<float> scale;
  std::vector<int32_t> sum;
  bool operator==(const Planes& other) const = default;
};

// Normal, with an outlier, all zero.
std::vector<uint16_t> rows_in() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> x;
  for (int32_t row = 0; row < 3; ++row) {
    for (int32_t c = 0; c < kColumns; ++c) {
      const float v = row == 2 ? 0 : normal(random) * (row == 1 && c == 300 ? 90.0f : 1.0f);
      x.push_back(f32_to_bf16(v));
    }
  }
  return x;
}

Planes make_planes(const Options& options, Report* report) {
  Options overlapping = options;
  overlapping.overlaps_previous = true;
  const DeviceBuffer<uint16_t> x("x", rows_in(), Access::kFresh);
  const DeviceBuffer<uint32_t> planes("planes", static_cast<size_t>(4 * planes_size(3, kColumns)),
                                      Access::kWrite);
  const DeviceBuffer<float> scale("scale", 3, Access::kWrite);
  const DeviceBuffer<int32_t> sum("sum", 3, Access::kWrite);
  const SignPlanesParams p = {x.data(), planes.data(), scale.data(), sum.data(), kColumns,
                              3,        kColumns};
  *report = launch(deltad_sign_planes, sign_planes_launch(p), p, overlapping);
  return {planes.values(), scale.values(), sum.values()};
}

TEST(SignPlanes, AreTheRoundedActivationsBits) {
  Report report;
  const std::vector<uint16_t> x = rows_in();
  const Planes got = make_planes({}, &report);
  ASSERT_TRUE(report.ok()) << report.text();
  const int32_t chunks = chunks_of(kColumns);
  for (int32_t row = 0; row < 3; ++row) {
    float largest = 0;
    for (int32_t c = 0; c < kColumns; ++c) {
      largest =
          std::max(largest, std::abs(bf16_to_f32(x[static_cast<size_t>(row * kColumns + c)])));
    }
    const float scale = got.scale[static_cast<size_t>(row)];
    EXPECT_FLOAT_EQ(scale, largest / 32767);
    int32_t sum = 0;
    for (int32_t c = 0; c < chunks * kChunk; ++c) {
      int32_t q = 0;
      for (int32_t plane = 0; plane < 16; ++plane) {
        const int32_t k = c % kChunk, lane = plane % 8 * 4 + k % 128 / 32;
        const int32_t word = plane / 8 + k / 128 * 2;
        const auto at = static_cast<size_t>(((row * chunks + c / kChunk) * 32 + lane) * 4 + word);
        q |= static_cast<int32_t>(got.planes[at] >> (k % 32) & 1) << plane;
      }
      q = static_cast<int16_t>(q);
      sum += q;
      const float v = c < kColumns ? bf16_to_f32(x[static_cast<size_t>(row * kColumns + c)]) : 0;
      // Half a step, and what fp32 adds to it.
      ASSERT_NEAR(q * double{scale}, v, 0.5 * scale + std::ldexp(std::abs(v), -22))
          << "row " << row << " column " << c;
    }
    EXPECT_EQ(got.sum[static_cast<size_t>(row)], sum);
  }
}

TEST(SignPlanes, EverySiteMatters) { expect_every_site_matters(make_planes); }

}  // namespace
}  // namespace deltad::cuda
