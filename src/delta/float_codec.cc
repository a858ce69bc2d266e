#include "delta/float_codec.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "io/convert.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

// f is a value that fp16 can hold.
uint16_t exact_f16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const int exponent = static_cast<int>((bits >> 23) & 0xffu) - 127;
  if (exponent < -14)  // zero and subnormals: multiples of 2^-24
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::fabs(f) * 0x1p24f));
  if (exponent == 128) return static_cast<uint16_t>(sign | 0x7c00u | ((bits >> 13) & 0x3ffu));
  return static_cast<uint16_t>(sign | ((exponent + 15) << 10) | ((bits >> 13) & 0x3ffu));
}

}  // namespace

void widen(DType type, int64_t count, const void* in, float* out) {
  const auto* halves = static_cast<const uint16_t*>(in);
  switch (type) {
    case DType::kF32:
      std::memcpy(out, in, static_cast<size_t>(count) * sizeof(float));
      return;
    case DType::kBF16:
      bf16_to_f32(halves, out, count);
      return;
    case DType::kF16:
      f16_to_f32(halves, out, count);
      return;
    default:
      CHECK(false, "widen: not a float type");
  }
}

void narrow(DType type, int64_t count, const float* in, void* out) {
  auto* halves = static_cast<uint16_t*>(out);
  switch (type) {
    case DType::kF32:
      std::memcpy(out, in, static_cast<size_t>(count) * sizeof(float));
      return;
    case DType::kBF16:
      f32_to_bf16(in, halves, count);
      return;
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) halves[i] = exact_f16(in[i]);
      return;
    default:
      CHECK(false, "narrow: not a float type");
  }
}

uint16_t f64_to_bf16(double value) {
  const float nearest = static_cast<float>(value);
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  const double back = nearest;
  if (back != value && std::isfinite(nearest)) {
    // Round to odd in fp32: truncate towards zero, then let the last bit remember what was cut off.
    if (std::fabs(back) > std::fabs(value)) --bits;
    bits |= 1u;
  }
  return f32_to_bf16(std::bit_cast<float>(bits));
}

}  // namespace deltad
