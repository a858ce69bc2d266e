// Lanes: sixteen fp32 lanes in one 512-bit register. Included by *_avx512.cc and *_avx512bf16.cc
// only. Everything here, and in the templates written on Lanes, is local to the including file: a
// function with a name that other files share would be merged by the linker, and code for an old
// CPU could then end up calling the copy compiled for a new one.
#pragma once

// GCC 12 takes its own _mm512_undefined_epi32 for a mistake.
#pragma GCC diagnostic push
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>

namespace deltad::cpu {
namespace {

struct Lanes {
  static constexpr int kRegisters = 32;  // how many F the registers hold
  using F = __m512;

  static F set1(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F load_first(const float* p, int n) { return _mm512_maskz_loadu_ps(below(n), p); }
  static void store(float* p, F a) { _mm512_storeu_ps(p, a); }
  static void store_first(float* p, F a, int n) { _mm512_mask_storeu_ps(p, below(n), a); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  // a·b + c, c − a·b
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
  // b where either is a NaN.
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F keep_first(F a, int n, F other) { return _mm512_mask_mov_ps(other, below(n), a); }
  static float sum(F a) {
    const __m256 s = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
  }
  static float largest(F a) {
    const __m256 m = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
  }
  // Nearest integer.
  static F round(F a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // a · 2^n for a whole n.
  static F scale(F a, F n) { return _mm512_scalef_ps(a, n); }
  static void store_bf16(uint16_t* p, F a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bf16_of(a));
  }
  static void store_bf16_first(uint16_t* p, F a, int n) {
    _mm256_mask_storeu_epi16(p, below(n), bf16_of(a));
  }
  // Sixteen bf16 values.
  static F load_bf16(const uint16_t* p) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
  }
  // Sixteen pairs of bf16 values: the first and the second of each pair.
  static F first_of_pairs(const uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
  }
  static F second_of_pairs(const uint16_t* p) {
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), high));
  }

 private:
  static __mmask16 below(int n) {
    return static_cast<__mmask16>(n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u);
  }
  // Round to nearest even; a NaN stays a NaN.
  static __m256i bf16_of(F a) {
#if defined(__AVX512BF16__)
    return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(a));
#else
    const __m512i u = _mm512_castps_si512(a);
    const __m512i high = _mm512_srli_epi32(u, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, bias), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40)));
#endif
  }
};

}  // namespace
}  // namespace deltad::cpu
