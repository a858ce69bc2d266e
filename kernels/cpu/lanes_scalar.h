// Lanes: sixteen fp32 lanes in plain C++, for CPUs without AVX2. Included by *_scalar.cc only;
// everything is local to the file that includes it (see lanes_avx512.h).
#pragma once

#include <cstdint>
#include <cstring>

namespace deltad::cpu {
namespace {

struct Lanes {
  static constexpr int kRegisters = 4;  // how many F the registers hold
  struct F {
    float v[16];
  };

  template <typename Op>
  static F each(const Op& op) {
    F r;
    for (int i = 0; i < 16; ++i) r.v[i] = op(i);
    return r;
  }
  static F set1(float x) {
    return each([&](int) { return x; });
  }
  static F load(const float* p) {
    return each([&](int i) { return p[i]; });
  }
  static F load_first(const float* p, int n) {
    return each([&](int i) { return i < n ? p[i] : 0.0f; });
  }
  static void store(float* p, const F& a) { std::memcpy(p, a.v, sizeof a.v); }
  static void store_first(float* p, const F& a, int n) {
    for (int i = 0; i < n; ++i) p[i] = a.v[i];
  }
  static F add(const F& a, const F& b) {
    return each([&](int i) { return a.v[i] + b.v[i]; });
  }
  static F sub(const F& a, const F& b) {
    return each([&](int i) { return a.v[i] - b.v[i]; });
  }
  static F mul(const F& a, const F& b) {
    return each([&](int i) { return a.v[i] * b.v[i]; });
  }
  static F div(const F& a, const F& b) {
    return each([&](int i) { return a.v[i] / b.v[i]; });
  }
  // a·b + c, c − a·b
  static F fma(const F& a, const F& b, const F& c) {
    return each([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
  }
  static F fnma(const F& a, const F& b, const F& c) {
    return each([&](int i) { return c.v[i] - a.v[i] * b.v[i]; });
  }
  // b where either is a NaN, as the x86 instruction has it.
  static F max(const F& a, const F& b) {
    return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F keep_first(const F& a, int n, const F& other) {
    return each([&](int i) { return i < n ? a.v[i] : other.v[i]; });
  }
  static float sum(const F& a) {
    float s[8];
    for (int i = 0; i < 8; ++i) s[i] = a.v[i] + a.v[i + 8];
    for (int i = 0; i < 4; ++i) s[i] += s[i + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
  }
  static float largest(const F& a) {
    float m = a.v[0];
    for (int i = 1; i < 16; ++i) m = m > a.v[i] ? m : a.v[i];
    return m;
  }
  // Nearest integer, |a| < 2^22: adding this constant leaves the integer in the low bits.
  static F round(const F& a) {
    return each([&](int i) { return (a.v[i] + 12582912.0f) - 12582912.0f; });
  }
  // a · 2^n for a whole n, both results normal.
  static F scale(const F& a, const F& n) {
    return each([&](int i) {
      int32_t bits;
      std::memcpy(&bits, &a.v[i], sizeof bits);
      // A NaN comes with a NaN n: the conversion must not see it.
      const float whole = n.v[i] > -128.0f ? n.v[i] : 0.0f;
      bits += static_cast<int32_t>(whole) * (1 << 23);
      float r;
      std::memcpy(&r, &bits, sizeof r);
      return n.v[i] == n.v[i] ? r : n.v[i];
    });
  }
  static void store_bf16(uint16_t* p, const F& a) { store_bf16_first(p, a, 16); }
  static void store_bf16_first(uint16_t* p, const F& a, int n) {
    for (int i = 0; i < n; ++i) {
      uint32_t u;
      std::memcpy(&u, &a.v[i], sizeof u);
      const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
      const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
      p[i] = static_cast<uint16_t>(nan ? (u >> 16) | 0x40u : rounded);
    }
  }
  // Sixteen bf16 values.
  static F load_bf16(const uint16_t* p) { return widen(p, 1); }
  // Sixteen pairs of bf16 values: the first and the second of each pair.
  static F first_of_pairs(const uint16_t* p) { return widen(p, 2); }
  static F second_of_pairs(const uint16_t* p) { return widen(p + 1, 2); }

 private:
  // Every `step`th of the bf16 values at p.
  static F widen(const uint16_t* p, int step) {
    return each([&](int i) {
      const uint32_t u = static_cast<uint32_t>(p[step * i]) << 16;
      float r;
      std::memcpy(&r, &u, sizeof r);
      return r;
    });
  }
};

}  // namespace
}  // namespace deltad::cpu
