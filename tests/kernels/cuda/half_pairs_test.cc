// The emulator's arithmetic on two f16 or bf16 in a word.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/cuda/device.h"
#include "tensor/float16.h"
#include "tests/kernels/cuda/prefill_case.h"

namespace deltad::cuda {
namespace {

double low(uint32_t pair) { return f16_to_f32(static_cast<uint16_t>(pair)); }
double high(uint32_t pair) { return f16_to_f32(static_cast<uint16_t>(pair >> 16)); }

void expect_same(double got, double want) {
  EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want))) << got << " not " << want;
}

TEST(HalfPairs, AddAndRoundOnce) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    const uint32_t a = random(), b = i % 2 == 0 ? random() : a + (random() & 0x00030003);
    const uint32_t sum = add_f16x2(a, b);
    const auto want = [](double x, double y) {
      return std::isfinite(x + y) ? rounded_to_f16(x + y) : x + y;
    };
    expect_same(low(sum), want(low(a), low(b)));
    expect_same(high(sum), want(high(a), high(b)));
  }
  EXPECT_EQ(add_f16x2(0x7bff3c00, 0x7bff8000), 0x7c003c00u);  // too large: infinite
}

TEST(HalfPairs, PackRoundsToTheNearestEven) {
  EXPECT_EQ(pack_f16x2(1.0f, -2.0f), 0xc0003c00u);
  EXPECT_EQ(pack_f16x2(1.0f + 0x1p-11f, 1.0f + 0x3p-11f), 0x3c023c00u);
  EXPECT_EQ(pack_f16x2(0x1p-24f, 0x1p-25f), 0x00000001u);  // the smallest; half of it
  EXPECT_EQ(pack_f16x2(65519.0f, 65520.0f), 0x7c007bffu);  // the largest; the first infinite
  EXPECT_EQ(pack_f16x2(0x1.ff8p-15f, 0x1.ffcp-15f), 0x040003ffu);  // a carry into the exponent
}

// With the prefill kernels' factors and shift, the bits of fp16.
TEST(HalfPairs, ScaledMagnitudesShiftedAreF16) {
  std::mt19937 random(2);
  for (int32_t exponent : {-14, 0, 12, 60}) {
    const uint32_t factors = prefill_factors(exponent);
    for (int i = 0; i < 4000; ++i) {
      // From 2^-34 to below 2^15 after scaling.
      const int e = static_cast<int>(random() % 49) - 34 - exponent;
      if (e < -126 || e > 127) continue;
      const uint32_t bits = static_cast<uint32_t>(e + 127) << 7 | (random() & 0x807f);
      const uint32_t pair = bits | 0x3f80u << 16;
      const double want = std::ldexp(std::abs(bf16_to_f32(static_cast<uint16_t>(bits))), exponent);
      const double got = low(scale_magnitudes_bf16x2(pair, factors) << 3);
      if (want >= 0x1p-14) {
        ASSERT_EQ(got, want);
      } else {
        ASSERT_NEAR(got, want, 0x1p-22);
      }
    }
  }
}

}  // namespace
}  // namespace deltad::cuda
