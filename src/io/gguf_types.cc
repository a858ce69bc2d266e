// The element types of GGUF files and what their blocks hold. All numbers are little-endian.
//   F32, F16, BF16  one value
//   Q8_0  f16 d, int8 q[32]                value i = d·q[i]
//   Q4_0  f16 d, 16 bytes of nibbles       value i = d·(n[i] − 8)
//   Q4_1  f16 d, f16 m, 16 bytes           value i = d·n[i] + m
// Nibbles: the low halves of the bytes are values 0 to 15, the high halves 16 to 31.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "io/convert.h"
#include "io/gguf.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

struct TypeName {
  uint32_t type;
  const char* name;
};
constexpr TypeName kNames[] = {
    {0, "F32"},     {1, "F16"},    {2, "Q4_0"},     {3, "Q4_1"},    {6, "Q5_0"},     {7, "Q5_1"},
    {8, "Q8_0"},    {9, "Q8_1"},   {10, "Q2_K"},    {11, "Q3_K"},   {12, "Q4_K"},    {13, "Q5_K"},
    {14, "Q6_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
    {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"}, {24, "I8"},      {25, "I16"},
    {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},  {30, "BF16"},    {34, "TQ1_0"},
    {35, "TQ2_0"},  {39, "MXFP4"}};

constexpr int64_t kBlockValues = 32;

float load_f16(const uint8_t* at) {
  uint16_t half;
  std::memcpy(&half, at, 2);
  return f16_to_f32(half);
}

// One block each. Products of an f16 and a small integer are exact in fp32, so that each value is
// rounded at most once.
void unpack_q8_0(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const auto* q = reinterpret_cast<const int8_t*>(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(q[i]);
}

void unpack_q4_0(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const uint8_t* q = block + 2;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((q[i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((q[i] >> 4) - 8);
  }
}

void unpack_q4_1(const uint8_t* block, float* out) {
  const float d = load_f16(block), m = load_f16(block + 2);
  const uint8_t* q = block + 4;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(q[i] & 15) + m;
    out[i + 16] = d * static_cast<float>(q[i] >> 4) + m;
  }
}

using Unpack = void (*)(const uint8_t* block, float* out);

template <Unpack unpack, int64_t kBytes>
void unpack_blocks(const uint8_t* raw, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kBlockValues, raw += kBytes) unpack(raw, out + i);
}

template <Unpack unpack, int64_t kBytes>
void unpack_blocks(const uint8_t* raw, int64_t count, uint16_t* out) {
  std::array<float, 8 * kBlockValues>
      values;  // a few blocks, so that rounding runs over long loops
  for (int64_t i = 0; i < count;) {
    const int64_t part = std::min<int64_t>(values.size(), count - i);
    unpack_blocks<unpack, kBytes>(raw, part, values.data());
    f32_to_bf16(values.data(), out + i, part);
    i += part;
    raw += part / kBlockValues * kBytes;
  }
}

void copy_f32(const uint8_t* raw, int64_t count, float* out) {
  std::memcpy(out, raw, static_cast<size_t>(count) * 4);
}
void copy_f32(const uint8_t* raw, int64_t count, uint16_t* out) {
  f32_to_bf16(reinterpret_cast<const float*>(raw), out, count);
}
void copy_f16(const uint8_t* raw, int64_t count, float* out) {
  f16_to_f32(reinterpret_cast<const uint16_t*>(raw), out, count);
}
void copy_f16(const uint8_t* raw, int64_t count, uint16_t* out) {
  f16_to_bf16(reinterpret_cast<const uint16_t*>(raw), out, count);
}
void copy_bf16(const uint8_t* raw, int64_t count, float* out) {
  bf16_to_f32(reinterpret_cast<const uint16_t*>(raw), out, count);
}
void copy_bf16(const uint8_t* raw, int64_t count, uint16_t* out) {
  std::memcpy(out, raw, static_cast<size_t>(count) * 2);
}

template <typename Out>
void dequantise(uint32_t type, const uint8_t* raw, int64_t count, Out* out) {
  switch (static_cast<GgufType>(type)) {
    case GgufType::kF32:
      return copy_f32(raw, count, out);
    case GgufType::kF16:
      return copy_f16(raw, count, out);
    case GgufType::kBF16:
      return copy_bf16(raw, count, out);
    case GgufType::kQ8_0:
      return unpack_blocks<unpack_q8_0, 34>(raw, count, out);
    case GgufType::kQ4_0:
      return unpack_blocks<unpack_q4_0, 18>(raw, count, out);
    case GgufType::kQ4_1:
      return unpack_blocks<unpack_q4_1, 20>(raw, count, out);
  }
  CHECK(false, "dequantising a type that is not supported");
}

}  // namespace

std::string gguf_type_name(uint32_t type) {
  for (const TypeName& known : kNames)
    if (known.type == type) return known.name;
  return fmt::format("type {}", type);
}

const GgufBlock* gguf_block(uint32_t type) {
  static constexpr GgufBlock kF32{1, 4}, kHalf{1, 2}, kQ8_0{32, 34}, kQ4_0{32, 18}, kQ4_1{32, 20};
  switch (static_cast<GgufType>(type)) {
    case GgufType::kF32:
      return &kF32;
    case GgufType::kF16:
    case GgufType::kBF16:
      return &kHalf;
    case GgufType::kQ8_0:
      return &kQ8_0;
    case GgufType::kQ4_0:
      return &kQ4_0;
    case GgufType::kQ4_1:
      return &kQ4_1;
  }
  return nullptr;
}

void gguf_dequantise(uint32_t type, const uint8_t* raw, int64_t count, float* out) {
  dequantise(type, raw, count, out);
}

void gguf_dequantise(uint32_t type, const uint8_t* raw, int64_t count, uint16_t* bf16_out) {
  dequantise(type, raw, count, bf16_out);
}

}  // namespace deltad
