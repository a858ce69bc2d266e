// Rotary embedding and cache append, written on Lanes; included once by each rope_ISA.cc after its
// Lanes, and local to that file (see lanes_avx512.h for why).
#pragma once

#include <cstdint>

#include "kernels/cpu/kv_layout.h"
#include "kernels/cpu/rope.h"

namespace deltad::cpu {
namespace {

void rotate(float* x, const float* cos_sin, int head_dim) {
  using F = Lanes::F;
  const int half = head_dim / 2;
  const float *cosines = cos_sin, *sines = cos_sin + half;
  int i = 0;
  for (; i + 16 <= half; i += 16) {
    const F c = Lanes::load(cosines + i), s = Lanes::load(sines + i);
    const F a = Lanes::load(x + i), b = Lanes::load(x + half + i);
    Lanes::store(x + i, Lanes::fnma(b, s, Lanes::mul(a, c)));
    Lanes::store(x + half + i, Lanes::fma(a, s, Lanes::mul(b, c)));
  }
  if (const int n = half - i; n > 0) {
    const F c = Lanes::load_first(cosines + i, n), s = Lanes::load_first(sines + i, n);
    const F a = Lanes::load_first(x + i, n), b = Lanes::load_first(x + half + i, n);
    Lanes::store_first(x + i, Lanes::fnma(b, s, Lanes::mul(a, c)), n);
    Lanes::store_first(x + half + i, Lanes::fma(a, s, Lanes::mul(b, c)), n);
  }
}

void to_bf16(uint16_t* out, const float* x, int n) {
  int i = 0;
  for (; i + 16 <= n; i += 16) Lanes::store_bf16(out + i, Lanes::load(x + i));
  if (i < n) Lanes::store_bf16_first(out + i, Lanes::load_first(x + i, n - i), n - i);
}

void append(uint16_t* head_part, int token, const float* key, const float* value, int head_dim) {
  uint16_t rounded[kMaxHeadDim];
  to_bf16(rounded, key, head_dim);
  uint16_t* keys = head_part + token * 2;
  for (int d = 0; d < head_dim; d += 2) {
    __builtin_memcpy(keys + d * kKvTokens, rounded + d, 2 * sizeof(uint16_t));
  }
  to_bf16(rounded, value, head_dim);
  const int padded_dim = (head_dim + 15) / 16 * 16;
  uint16_t* values = head_part + kKvTokens * head_dim + token / 2 * 2 * padded_dim;
  // Pairs are rewritten whole: a vector of 32-bit lanes instead of 16-bit stores two bytes apart.
  const uint32_t keep = token % 2 == 0 ? 0xffff0000u : 0x0000ffffu;
  const int shift = token % 2 == 0 ? 0 : 16;
  for (int d = 0; d < head_dim; ++d) {
    uint32_t pair;
    __builtin_memcpy(&pair, values + 2 * d, sizeof pair);
    pair = (pair & keep) | (static_cast<uint32_t>(rounded[d]) << shift);
    __builtin_memcpy(values + 2 * d, &pair, sizeof pair);
  }
}

}  // namespace
}  // namespace deltad::cpu
