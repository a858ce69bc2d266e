// What a 32-bit word of a tensor core's operand holds: kPerWord elements along K. Pure functions.
#pragma once

#include <bit>
#include <cstdint>

#include "tests/support/ptx/minifloat.h"

namespace deltad::ptx {

struct BrainElements {
  static constexpr int kPerWord = 2;
  static float get(uint32_t word, int e) { return bf16_to_float(word >> (16 * e) & 0xffff); }
};
struct HalfElements {
  static constexpr int kPerWord = 2;
  static float get(uint32_t word, int e) { return f16_to_float(word >> (16 * e) & 0xffff); }
};
struct TensorFloat {
  static constexpr int kPerWord = 1;
  static float get(uint32_t word, int) { return std::bit_cast<float>(word & 0xffffe000U); }
};
template <typename T>
struct Bytes {
  static constexpr int kPerWord = 4;
  static int32_t get(uint32_t word, int e) { return static_cast<T>(word >> (8 * e)); }
};

}  // namespace deltad::ptx
