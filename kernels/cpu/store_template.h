// Where a kernel written on Lanes puts its results: fp32 or bf16. Included after a Lanes and local
// to that file (see lanes_avx512.h for why).
#pragma once

#include <cstdint>

namespace deltad::cpu {
namespace {

// store: the first n ≤ 16 values at columns column, column+1, … of row `out`.
struct StoreFp32 {
  static void store(void* out, int64_t column, const Lanes::F& values, int n) {
    float* p = static_cast<float*>(out) + column;
    if (n == 16) {
      Lanes::store(p, values);
    } else {
      Lanes::store_first(p, values, n);
    }
  }
};

struct StoreBf16 {
  static void store(void* out, int64_t column, const Lanes::F& values, int n) {
    uint16_t* p = static_cast<uint16_t*>(out) + column;
    if (n == 16) {
      Lanes::store_bf16(p, values);
    } else {
      Lanes::store_bf16_first(p, values, n);
    }
  }
};

}  // namespace
}  // namespace deltad::cpu
