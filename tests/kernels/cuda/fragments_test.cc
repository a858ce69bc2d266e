// The emulator's warp instructions on whole matrices: fragments loaded as docs/kernels.md draws
// them must give the matrix product.
#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <vector>

#include "kernels/cuda/device.h"
#include "tensor/float16.h"
#include "tests/support/cuda_on_cpu/global_memory.h"
#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {
namespace {

using emulator::Access;
using emulator::DeviceBuffer;
using emulator::launch;
using emulator::Report;

// D[16, 8] = A[16, 16] · B[8, 16]ᵀ, 16-bit elements by rows.
struct Product {
  const uint16_t* a;
  const uint16_t* b;
  float* d;
  int32_t f16;
};

// A through ldmatrix, B's two registers straight from memory.
void product_kernel(Product p) {
  const Shared<uint16_t> a_rows = dynamic_shared<uint16_t>();
  const auto lane = static_cast<int32_t>(threadIdx.x);
  cp_async_16(a_rows + 8 * lane, p.a + 8 * lane);
  cp_async_commit();
  cp_async_wait<0>();
  __syncwarp();
  uint32_t a[4];
  ldmatrix_x4(a, a_rows + (16 * (lane % 16) + 8 * (lane / 16)));
  const auto* b_row = reinterpret_cast<const uint32_t*>(p.b + 16 * (lane / 4));
  const uint32_t b[2] = {load_global(b_row + lane % 4), load_global(b_row + lane % 4 + 4)};
  float d[4] = {};
  if (p.f16 != 0) {
    mma_m16n8k16_f16(d, a, b);
  } else {
    mma_m16n8k16_bf16(d, a, b);
  }
  for (int i = 0; i < 4; ++i) {
    store_global(p.d + 8 * (lane / 4 + 8 * (i / 2)) + 2 * (lane % 4) + i % 2, d[i]);
  }
}

// Small whole numbers: every sum is exact in every type.
TEST(Fragments, Mma16x8x16) {
  std::mt19937 random(5);
  for (int32_t f16 : {0, 1}) {
    const auto bits = [&](int v) {  // −8…7
      if (f16 == 0) return f32_to_bf16(static_cast<float>(v));
      if (v == 0) return uint16_t{0};
      const int magnitude = v < 0 ? -v : v, exponent = std::bit_width(unsigned(magnitude)) - 1;
      return static_cast<uint16_t>((v < 0 ? 0x8000 : 0) | (exponent + 15) << 10 |
                                   ((magnitude << (10 - exponent)) & 0x3ff));
    };
    std::vector<int> a(256), b(128);
    std::vector<uint16_t> a_bits, b_bits;
    for (int& v : a) a_bits.push_back(bits(v = static_cast<int>(random() % 16) - 8));
    for (int& v : b) b_bits.push_back(bits(v = static_cast<int>(random() % 16) - 8));
    DeviceBuffer<uint16_t> a_buffer("a", a_bits), b_buffer("b", b_bits);
    DeviceBuffer<float> d("d", 128, Access::kWrite);
    const Report report =
        launch(product_kernel, {{1}, {32}, 512}, {a_buffer.data(), b_buffer.data(), d.data(), f16});
    ASSERT_TRUE(report.ok()) << report.text();
    for (size_t row = 0; row < 16; ++row) {
      for (size_t column = 0; column < 8; ++column) {
        int sum = 0;
        for (size_t k = 0; k < 16; ++k) sum += a[16 * row + k] * b[16 * column + k];
        EXPECT_EQ(d[8 * row + column], static_cast<float>(sum)) << row << ", " << column;
      }
    }
  }
}

struct Bits {
  const uint32_t* a;  // [16, 256 bits]
  const uint32_t* b;  // [8, 256 bits]
  int32_t* d;         // [2, 16, 8]: and, xor
};

void bits_kernel(Bits p) {
  const auto lane = static_cast<int32_t>(threadIdx.x);
  uint32_t a[4];
  for (int i = 0; i < 4; ++i) {
    a[i] = load_global(p.a + 8 * (lane / 4 + 8 * (i % 2)) + lane % 4 + 4 * (i / 2));
  }
  const uint32_t b[2] = {load_global(p.b + 8 * (lane / 4) + lane % 4),
                         load_global(p.b + 8 * (lane / 4) + lane % 4 + 4)};
  int32_t both[4] = {}, differ[4] = {};
  mma_m16n8k256_and(both, a, b);
  mma_m16n8k256_xor(differ, a, b);
  for (int i = 0; i < 4; ++i) {
    const int at = 8 * (lane / 4 + 8 * (i / 2)) + 2 * (lane % 4) + i % 2;
    store_global(p.d + at, both[i]);
    store_global(p.d + 128 + at, differ[i]);
  }
}

TEST(Fragments, BitsOf16x8x256) {
  std::mt19937 random(6);
  std::vector<uint32_t> a(128), b(64);
  for (uint32_t& v : a) v = static_cast<uint32_t>(random());
  for (uint32_t& v : b) v = static_cast<uint32_t>(random());
  DeviceBuffer<uint32_t> a_buffer("a", a), b_buffer("b", b);
  DeviceBuffer<int32_t> d("d", 256, Access::kWrite);
  const Report report =
      launch(bits_kernel, {{1}, {32}, 0}, {a_buffer.data(), b_buffer.data(), d.data()});
  ASSERT_TRUE(report.ok()) << report.text();
  for (size_t row = 0; row < 16; ++row) {
    for (size_t column = 0; column < 8; ++column) {
      int both = 0, differ = 0;
      for (size_t w = 0; w < 8; ++w) {
        both += std::popcount(a[8 * row + w] & b[8 * column + w]);
        differ += std::popcount(a[8 * row + w] ^ b[8 * column + w]);
      }
      EXPECT_EQ(d[8 * row + column], both);
      EXPECT_EQ(d[128 + 8 * row + column], differ);
    }
  }
}

struct Transpose {
  const uint16_t* in;  // [32, 8]
  uint32_t* out;       // [32 lanes, 4]
};

void transpose_kernel(Transpose p) {
  const Shared<uint4> rows = dynamic_shared<uint4>();
  const auto lane = static_cast<int32_t>(threadIdx.x);
  store_shared(rows + lane, load_global(reinterpret_cast<const uint4*>(p.in) + lane));
  __syncwarp();
  uint32_t r[4];
  ldmatrix_x4_transposed(r, rows + lane);
  for (int i = 0; i < 4; ++i) store_global(p.out + 4 * lane + i, r[i]);
}

TEST(Fragments, LdmatrixTransposes) {
  std::vector<uint16_t> in(256);
  for (size_t i = 0; i < 256; ++i) in[i] = static_cast<uint16_t>(i);
  DeviceBuffer<uint16_t> in_buffer("in", in);
  DeviceBuffer<uint32_t> out("out", 128, Access::kWrite);
  const Report report = launch(transpose_kernel, {{1}, {32}, 512}, {in_buffer.data(), out.data()});
  ASSERT_TRUE(report.ok()) << report.text();
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t i = 0; i < 4; ++i) {
      // Matrix i: rows 8i…; the lane holds column lane / 4, rows 2·(lane % 4) and the next.
      const uint32_t low = 8 * (8 * i + 2 * (lane % 4)) + lane / 4;
      EXPECT_EQ(out[4 * lane + i], low | (low + 8) << 16);
    }
  }
}

struct Words {
  uint32_t* out;
};

void words_kernel(Words p) {
  constexpr uint32_t a = 0x12345678, b = 0x9abcdef0, c = 0x0f0f3355;
  store_global(p.out, lop3<(0xf0 & 0xcc) ^ 0xaa>(a, b, c));
  store_global(p.out + 1, prmt(a, b, 0x7410));
  store_global(p.out + 2, prmt(a, b, 0xf008));
  store_global(p.out + 3, pack_bf16x2(1.0f, -2.0f));
}

TEST(Fragments, WordFunctions) {
  DeviceBuffer<uint32_t> out("out", 4, Access::kWrite);
  ASSERT_TRUE(launch(words_kernel, {{1}, {1}, 0}, {out.data()}).ok());
  EXPECT_EQ(out[0], (0x12345678u & 0x9abcdef0u) ^ 0x0f0f3355u);
  EXPECT_EQ(out[1], 0x9af05678u);  // bytes 7, 4, 1, 0 of b:a
  EXPECT_EQ(out[2], 0xff787800u);  // the sign of byte 7; byte 0 twice; the sign of byte 0
  EXPECT_EQ(out[3], 0xc0003f80u);
}

}  // namespace
}  // namespace deltad::cuda
