// The emulator's wgmma on whole matrices, in every layout of B, and what it says of misuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/wgmma_layout.h"
#include "tests/kernels/cuda/mutations.h"
#include "tests/support/cuda_on_cpu/global_memory.h"
#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {
namespace {

using emulator::Access;
using emulator::DeviceBuffer;
using emulator::launch;
using emulator::Options;
using emulator::Report;

constexpr int32_t kN = 128, kK = 32;  // two instructions, a group each

struct Product {
  const uint16_t* a;  // f16 [64, kK]
  const uint16_t* b;  // f16 [kN, kK]
  float* d;           // [64, kN]
  WgmmaSwizzle swizzle;
};

// Where the 16 bytes of B at (row, unit) go: the layout of each swizzle, written down anew.
int32_t place_of(WgmmaSwizzle swizzle, int32_t row, int32_t unit) {
  const int32_t group = row / 8, r = row % 8;
  switch (swizzle) {
    case WgmmaSwizzle::kNone:  // [k unit][row group][row] 16 bytes
      return unit * kN * 16 + group * 128 + r * 16;
    case WgmmaSwizzle::k128:
      return group * 1024 + r * 128 + (unit ^ r) * 16;
    case WgmmaSwizzle::k64:
      return group * 512 + r * 64 + (unit ^ r / 2) * 16;
    case WgmmaSwizzle::k32:  // two units a row: the k of one instruction, then of the other
      return unit / 2 * kN * 32 + group * 256 + r * 32 + (unit % 2 ^ r / 4) * 16;
  }
  return 0;
}

uint64_t descriptor_of(WgmmaSwizzle swizzle, Shared<uint4> b, int32_t step) {
  switch (swizzle) {
    case WgmmaSwizzle::kNone:
      return wgmma_descriptor(b + step * 2 * kN, kN * 16, 128, swizzle);
    case WgmmaSwizzle::k128:
      return wgmma_descriptor(b + step * 2, 0, 1024, swizzle);
    case WgmmaSwizzle::k64:
      return wgmma_descriptor(b + step * 2, 0, 512, swizzle);
    case WgmmaSwizzle::k32:
      return wgmma_descriptor(b + step * kN * 2, 0, 256, swizzle);
  }
  return 0;
}

// kInTurn: A of the second step goes where that of the first was.
template <bool kInTurn>
void product_kernel(Product p) {
  const Shared<uint4> b = dynamic_shared<uint4>();
  const auto thread = static_cast<int32_t>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  for (int32_t i = thread; i < kN * kK / 8; i += 128) {
    const int32_t row = i / (kK / 8), unit = i % (kK / 8);
    store_shared(b + place_of(p.swizzle, row, unit) / 16,
                 load_global(reinterpret_cast<const uint4*>(p.b) + i));
  }
  fence_proxy_async();
  __syncthreads();
  float d[kN / 2] = {};
  uint32_t a[2][4];
  const auto load_a = [&](int32_t step, uint32_t(&to)[4]) {
    for (int32_t i = 0; i < 4; ++i) {
      const int32_t row = 16 * warp + lane / 4 + 8 * (i % 2);
      const int32_t k = 16 * step + 2 * (lane % 4) + 8 * (i / 2);
      to[i] = load_global(reinterpret_cast<const uint32_t*>(p.a + row * kK + k));
    }
  };
  load_a(0, a[0]);
  if (!kInTurn) load_a(1, a[1]);
  wgmma_fence();
  for (int32_t step = 0; step < 2; ++step) {
    wgmma_m64n128k16_f16(d, a[kInTurn ? 0 : step], descriptor_of(p.swizzle, b, step));
    wgmma_commit();
    if (!kInTurn || step > 0) continue;
    wgmma_wait<0>();
    load_a(1, a[0]);
    wgmma_fence();
  }
  wgmma_wait<0>();
  for (int32_t i = 0; i < kN / 2; ++i) {
    const int32_t row = 16 * warp + lane / 4 + 8 * (i / 2 % 2);
    store_global(p.d + row * kN + i / 4 * 8 + 2 * (lane % 4) + i % 2, d[i]);
  }
}

// −8…7 in f16.
uint16_t f16_of(int v) {
  if (v == 0) return 0;
  const auto magnitude = static_cast<unsigned>(v < 0 ? -v : v);
  const auto exponent = static_cast<unsigned>(std::bit_width(magnitude)) - 1;
  return static_cast<uint16_t>((v < 0 ? 0x8000u : 0u) | (exponent + 15) << 10 |
                               ((magnitude << (10 - exponent)) & 0x3ffu));
}

struct Matrices {
  Matrices() {
    std::mt19937 random(9);
    for (int i = 0; i < 64 * kK; ++i) a.push_back(static_cast<int>(random() % 16) - 8);
    for (int i = 0; i < kN * kK; ++i) b.push_back(static_cast<int>(random() % 16) - 8);
  }
  std::vector<float> run(WgmmaSwizzle swizzle, const Options& options, Report* report,
                         void (*kernel)(Product) = product_kernel<false>) const {
    std::vector<uint16_t> a_bits, b_bits;
    for (int v : a) a_bits.push_back(f16_of(v));
    for (int v : b) b_bits.push_back(f16_of(v));
    const DeviceBuffer<uint16_t> a_buffer("a", a_bits), b_buffer("b", b_bits);
    const DeviceBuffer<float> d("d", 64 * kN, Access::kWrite);
    // The widest layout has rows of 128 bytes.
    *report = launch(kernel, {{1}, {128}, kN * 128},
                     {a_buffer.data(), b_buffer.data(), d.data(), swizzle}, options);
    return d.values();
  }
  std::vector<int> a, b;
};

class Wgmma : public testing::TestWithParam<WgmmaSwizzle> {};
std::string name_of(const testing::TestParamInfo<WgmmaSwizzle>& info) {
  constexpr const char* names[] = {"none", "bytes128", "bytes64", "bytes32"};
  return names[static_cast<size_t>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Swizzles, Wgmma,
                         testing::Values(WgmmaSwizzle::kNone, WgmmaSwizzle::k128, WgmmaSwizzle::k64,
                                         WgmmaSwizzle::k32),
                         name_of);

TEST_P(Wgmma, GivesTheProduct) {
  const Matrices m;
  Report report;
  const std::vector<float> d = m.run(GetParam(), {.order = emulator::Order::kRandom}, &report);
  ASSERT_TRUE(report.ok()) << report.text();
  for (size_t row = 0; row < 64; ++row) {
    for (size_t column = 0; column < kN; ++column) {
      int sum = 0;
      for (size_t k = 0; k < kK; ++k) sum += m.a[row * kK + k] * m.b[column * kK + k];
      ASSERT_EQ(d[row * kN + column], static_cast<float>(sum)) << row << ", " << column;
    }
  }
}

TEST(WgmmaSites, AllMatter) {
  const Matrices m;
  expect_every_site_matters([&](const Options& options, Report* report) {
    return m.run(WgmmaSwizzle::k128, options, report);
  });
}

// A's registers are read until the wait: the one between the steps keeps them.
TEST(WgmmaSites, AllMatterWhereAIsOverwritten) {
  const Matrices m;
  Report report;
  EXPECT_EQ(m.run(WgmmaSwizzle::kNone, {}, &report, product_kernel<true>),
            m.run(WgmmaSwizzle::kNone, {}, &report));
  expect_every_site_matters([&](const Options& options, Report* of_run) {
    return m.run(WgmmaSwizzle::k128, options, of_run, product_kernel<true>);
  });
}

}  // namespace
}  // namespace deltad::cuda
