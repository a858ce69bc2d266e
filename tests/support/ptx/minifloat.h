// Number formats of the GPU: bf16, f16 and tf32 to and from float, with PTX's roundings. Pure
// functions.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace deltad::ptx {

enum class Round { kNearest, kZero, kDown, kUp, kAway };

inline float bf16_to_float(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

// Without branches, so that loops over it become vector code: the exponents' bias differs by 112,
// and a multiplication by 2^112 is exact, also of what was subnormal. All NaNs become one.
inline float f16_to_float(uint32_t bits) {
  constexpr uint32_t kInfinity = 0x7f80'0000, kNaN = 0x7fc0'0000, kHalfInfinity = 0x7c00 << 13;
  const uint32_t sign = (bits & 0x8000) << 16, rest = (bits & 0x7fff) << 13;
  const auto finite = std::bit_cast<uint32_t>(std::bit_cast<float>(rest) * 0x1p112F);
  const uint32_t special = rest == kHalfInfinity ? kInfinity | sign : kNaN;
  return std::bit_cast<float>(rest < kHalfInfinity ? finite | sign : special);
}

// x rounded to a binary format of `exponent_bits` and `mantissa_bits` (IEEE-like, with infinities).
// PTX's NaN is the one with all mantissa bits set.
inline uint32_t encode(double x, int exponent_bits, int mantissa_bits, Round mode) {
  const uint32_t infinity = ((1U << exponent_bits) - 1) << mantissa_bits;
  if (std::isnan(x)) return (1U << (exponent_bits + mantissa_bits)) - 1;
  const uint32_t sign = std::signbit(x) ? 1U << (exponent_bits + mantissa_bits) : 0;
  const double a = std::fabs(x);
  if (std::isinf(a)) return sign | infinity;
  if (a == 0) return sign;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (mode == Round::kNearest && a >= std::bit_cast<double>(uint64_t(1024 - bias) << 52)) {
    // Normal and to nearest, the usual case: rounded in the bits of the double.
    const int cut = 52 - mantissa_bits;
    uint64_t bits = std::bit_cast<uint64_t>(a);
    bits += (uint64_t{1} << (cut - 1)) - 1 + (bits >> cut & 1);
    bits = (bits >> cut) - (uint64_t(1023 - bias) << mantissa_bits);
    return sign | static_cast<uint32_t>(std::min<uint64_t>(bits, infinity));
  }
  const int exponent = std::max(std::ilogb(a), 1 - bias);  // subnormals share the lowest exponent
  const double scaled = std::ldexp(a, mantissa_bits - exponent);
  double whole = std::floor(scaled);
  const double rest = scaled - whole;
  const bool odd = std::fmod(whole, 2) != 0;
  switch (mode) {
    case Round::kNearest:
      whole += rest > 0.5 || (rest == 0.5 && odd);
      break;
    case Round::kAway:
      whole += rest >= 0.5;
      break;
    case Round::kZero:
      break;
    case Round::kDown:
      whole += rest > 0 && sign;
      break;
    case Round::kUp:
      whole += rest > 0 && !sign;
      break;
  }
  // The mantissa's hidden bit carries into the exponent by itself, also from subnormal to normal.
  const auto mantissa = static_cast<uint64_t>(whole);
  const uint64_t bits = mantissa + (static_cast<uint64_t>(exponent + bias - 1) << mantissa_bits);
  if (bits >= infinity) {
    const bool toward_zero =
        mode == Round::kZero || (mode == Round::kDown && !sign) || (mode == Round::kUp && sign);
    return sign | (toward_zero ? infinity - 1 : infinity);
  }
  return sign | static_cast<uint32_t>(bits);
}

inline uint32_t to_bf16(double x, Round mode = Round::kNearest) { return encode(x, 8, 7, mode); }
inline uint32_t to_f16(double x, Round mode = Round::kNearest) { return encode(x, 5, 10, mode); }

// A double or an integer to float, rounded as `mode` says; the host rounds to nearest.
template <typename V>
inline float to_float(V exact, Round mode) {
  const auto f = static_cast<float>(exact);
  const auto back = static_cast<long double>(f), x = static_cast<long double>(exact);
  if (mode == Round::kNearest || !std::isfinite(f) || back == x) return f;
  const bool up = mode == Round::kUp || (mode == Round::kZero && x < 0);
  if (up) return back < x ? std::nextafter(f, std::numeric_limits<float>::infinity()) : f;
  return back > x ? std::nextafter(f, -std::numeric_limits<float>::infinity()) : f;
}

// a·b + c rounded to odd in double, so that a second rounding to at most 32 bits is exact. The
// product of two floats is exact in double.
inline double fma_round_to_odd(double a, double b, double c) {
  const double p = a * b, sum = p + c;
  if (!std::isfinite(sum)) return sum;
  const double back = sum - p;
  const double error = (p - (sum - back)) + (c - back);
  if (error == 0) return sum;
  auto bits = std::bit_cast<uint64_t>(sum);
  if (bits & 1) return sum;
  // Toward the error's side, one step: odd.
  const bool away = (error > 0) == (sum > 0);
  return std::bit_cast<double>(away ? bits + 1 : bits - 1);
}

}  // namespace deltad::ptx
