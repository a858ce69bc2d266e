// Lanes: sixteen fp32 lanes as two 256-bit registers (AVX2, FMA). Included by *_avx2.cc only;
// everything is local to the file that includes it (see lanes_avx512.h).
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace deltad::cpu {
namespace {

struct Lanes {
  static constexpr int kRegisters = 8;  // how many F the registers hold
  struct F {
    __m256 lo, hi;
  };

  static F set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static F load_first(const float* p, int n) {
    return {_mm256_maskload_ps(p, below(n)),
            n > 8 ? _mm256_maskload_ps(p + 8, below(n - 8)) : _mm256_setzero_ps()};
  }
  static void store(float* p, const F& a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
  }
  static void store_first(float* p, const F& a, int n) {
    _mm256_maskstore_ps(p, below(n), a.lo);
    if (n > 8) _mm256_maskstore_ps(p + 8, below(n - 8), a.hi);
  }
  static F add(const F& a, const F& b) {
    return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
  }
  static F sub(const F& a, const F& b) {
    return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
  }
  static F mul(const F& a, const F& b) {
    return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
  }
  static F div(const F& a, const F& b) {
    return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
  }
  // a·b + c, c − a·b
  static F fma(const F& a, const F& b, const F& c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  static F fnma(const F& a, const F& b, const F& c) {
    return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
  }
  // b where either is a NaN.
  static F max(const F& a, const F& b) {
    return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
  }
  static F keep_first(const F& a, int n, const F& other) {
    return {_mm256_blendv_ps(other.lo, a.lo, _mm256_castsi256_ps(below(n))),
            _mm256_blendv_ps(other.hi, a.hi, _mm256_castsi256_ps(below(n - 8)))};
  }
  static float sum(const F& a) {
    const __m256 s = _mm256_add_ps(a.lo, a.hi);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
  }
  static float largest(const F& a) {
    const __m256 m = _mm256_max_ps(a.lo, a.hi);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
  }
  // Nearest integer.
  static F round(const F& a) {
    return {_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
            _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  // a · 2^n for a whole n, both results normal.
  static F scale(const F& a, const F& n) { return {scale8(a.lo, n.lo), scale8(a.hi, n.hi)}; }
  static void store_bf16(uint16_t* p, const F& a) {
    const __m256i packed = _mm256_packus_epi32(bf16_of(a.lo), bf16_of(a.hi));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
  }
  static void store_bf16_first(uint16_t* p, const F& a, int n) {
    alignas(32) uint16_t all[16];
    store_bf16(all, a);
    for (int i = 0; i < n; ++i) p[i] = all[i];
  }
  // Sixteen bf16 values.
  static F load_bf16(const uint16_t* p) { return {widen8(p), widen8(p + 8)}; }
  // Sixteen pairs of bf16 values: the first and the second of each pair.
  static F first_of_pairs(const uint16_t* p) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(load_pairs(p), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(load_pairs(p + 16), 16))};
  }
  static F second_of_pairs(const uint16_t* p) {
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return {_mm256_castsi256_ps(_mm256_and_si256(load_pairs(p), high)),
            _mm256_castsi256_ps(_mm256_and_si256(load_pairs(p + 16), high))};
  }

 private:
  static __m256i below(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static __m256 widen8(const uint16_t* p) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
  }
  static __m256i load_pairs(const uint16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static __m256 scale8(__m256 a, __m256 n) {
    const __m256i shift = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    const __m256 r = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), shift));
    return _mm256_blendv_ps(r, n, _mm256_cmp_ps(n, n, _CMP_UNORD_Q));
  }
  // Round to nearest even in the low half of each lane; a NaN stays a NaN.
  static __m256i bf16_of(__m256 a) {
    const __m256i u = _mm256_castps_si256(a);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, bias), 16);
    const __m256i nan = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
    const __m256 is_nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
    return _mm256_blendv_epi8(rounded, nan, _mm256_castps_si256(is_nan));
  }
};

}  // namespace
}  // namespace deltad::cpu
