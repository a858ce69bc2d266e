// The loops behind convert.h.
#include "io/convert.h"

#include <bit>

#include "tensor/float16.h"

namespace deltad {
namespace {

static_assert(std::endian::native == std::endian::little, "model files are little-endian");

// As f16_to_f32 of tensor/float16.h, but without branches. A subnormal is 2^-14 · (1 + m/1024) −
// 2^-14, which is exact.
inline float from_f16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(half & 0x7fffu) << 13;
  const uint32_t normal = rest + (112u << 23);
  const float small = std::bit_cast<float>(rest + (113u << 23)) - 0x1p-14f;
  uint32_t bits = normal;
  bits = rest < (1u << 23) ? std::bit_cast<uint32_t>(small) : bits;
  bits = rest >= (31u << 23) ? rest + (224u << 23) : bits;
  return std::bit_cast<float>(bits | sign);
}

// As f32_to_bf16 of tensor/float16.h, as a choice of two values rather than a branch.
inline uint16_t to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const uint32_t nan = bits >> 16 | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

}  // namespace

void f16_to_f32(const uint16_t* __restrict in, float* __restrict out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = from_f16(in[i]);
}

void bf16_to_f32(const uint16_t* __restrict in, float* __restrict out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = deltad::bf16_to_f32(in[i]);
}

void f32_to_bf16(const float* __restrict in, uint16_t* __restrict out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = to_bf16(in[i]);
}

void f16_to_bf16(const uint16_t* __restrict in, uint16_t* __restrict out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = to_bf16(from_f16(in[i]));
}

}  // namespace deltad
