#include "tests/support/cuda_on_cpu/tensor_core.h"

#include <bit>
#include <cstddef>

#include "tensor/float16.h"

namespace deltad::emulator {
namespace {

template <class ToFloat>
void mma_k16(const WarpFragments<float>& warp, ToFloat to_float) {
  float a[16][16], b[16][8], d[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const Fragments<float>& f = warp[static_cast<std::size_t>(lane)];
    const int group = lane / 4, pair = lane % 4;
    for (int i = 0; i < 4; ++i) {
      const int row = group + 8 * (i % 2), k = 2 * pair + 8 * (i / 2);
      a[row][k] = to_float(static_cast<uint16_t>(f.a[i]));
      a[row][k + 1] = to_float(static_cast<uint16_t>(f.a[i] >> 16));
      d[group + 8 * (i / 2)][2 * pair + i % 2] = f.d[i];
    }
    for (int i = 0; i < 2; ++i) {
      const int k = 2 * pair + 8 * i;
      b[k][group] = to_float(static_cast<uint16_t>(f.b[i]));
      b[k + 1][group] = to_float(static_cast<uint16_t>(f.b[i] >> 16));
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) d[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    float* out = warp[static_cast<std::size_t>(lane)].d;
    for (int i = 0; i < 4; ++i) out[i] = d[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
  }
}

template <class Combine>
void mma_k256(const WarpFragments<int32_t>& warp, Combine combine) {
  uint32_t a[16][8], b[8][8];  // 32 bits of k a word
  for (int lane = 0; lane < 32; ++lane) {
    const Fragments<int32_t>& f = warp[static_cast<std::size_t>(lane)];
    const int group = lane / 4, word = lane % 4;
    for (int i = 0; i < 4; ++i) a[group + 8 * (i % 2)][word + 4 * (i / 2)] = f.a[i];
    for (int i = 0; i < 2; ++i) b[group][word + 4 * i] = f.b[i];
  }
  for (int lane = 0; lane < 32; ++lane) {
    int32_t* out = warp[static_cast<std::size_t>(lane)].d;
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
      int32_t sum = 0;
      for (int w = 0; w < 8; ++w) sum += std::popcount(combine(a[row][w], b[column][w]));
      out[i] += sum;
    }
  }
}

}  // namespace

void mma_bf16(const WarpFragments<float>& warp) {
  mma_k16(warp, [](uint16_t v) { return bf16_to_f32(v); });
}
void mma_f16(const WarpFragments<float>& warp) {
  mma_k16(warp, [](uint16_t v) { return f16_to_f32(v); });
}
void mma_b1_and(const WarpFragments<int32_t>& warp) {
  mma_k256(warp, [](uint32_t a, uint32_t b) { return a & b; });
}
void mma_b1_xor(const WarpFragments<int32_t>& warp) {
  mma_k256(warp, [](uint32_t a, uint32_t b) { return a ^ b; });
}

}  // namespace deltad::emulator
