// RMSNorm of one row, written on Lanes; included once by each norm_ISA.cc after its Lanes, and
// local to that file (see lanes_avx512.h for why).
#pragma once

#include <cstdint>

#include "kernels/cpu/store_template.h"

namespace deltad::cpu {
namespace {

// Store: of store_template.h.
template <typename Store>
void normalize_row(void* out, const float* x, const float* weight, int64_t columns, float eps) {
  using F = Lanes::F;
  F squares[4] = {Lanes::set1(0.0f), Lanes::set1(0.0f), Lanes::set1(0.0f), Lanes::set1(0.0f)};
  const int64_t whole = columns / 16 * 16;
  const int rest = static_cast<int>(columns - whole);
  int64_t c = 0;
  for (; c + 64 <= whole; c += 64) {
    for (int i = 0; i < 4; ++i) {
      const F v = Lanes::load(x + c + 16 * i);
      squares[i] = Lanes::fma(v, v, squares[i]);
    }
  }
  for (; c < whole; c += 16) {
    const F v = Lanes::load(x + c);
    squares[0] = Lanes::fma(v, v, squares[0]);
  }
  if (rest > 0) {
    const F v = Lanes::load_first(x + c, rest);
    squares[1] = Lanes::fma(v, v, squares[1]);
  }
  const float sum = Lanes::sum(
      Lanes::add(Lanes::add(squares[0], squares[1]), Lanes::add(squares[2], squares[3])));
  const F scale = Lanes::set1(1.0f / __builtin_sqrtf(sum / static_cast<float>(columns) + eps));
  for (c = 0; c < whole; c += 16) {
    const F v = Lanes::mul(Lanes::load(x + c), scale);
    Store::store(out, c, Lanes::mul(v, Lanes::load(weight + c)), 16);
  }
  if (rest > 0) {
    const F v = Lanes::mul(Lanes::load_first(x + c, rest), scale);
    Store::store(out, c, Lanes::mul(v, Lanes::load_first(weight + c, rest)), rest);
  }
}

}  // namespace
}  // namespace deltad::cpu
