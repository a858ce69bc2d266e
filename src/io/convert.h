// Conversions of many values between the stored float types: exact, or to bf16 rounded to nearest
// even. Plain loops that compilers vectorise; pure functions, any thread. in and out must not
// overlap.
#pragma once

#include <cstdint>

namespace deltad {

void f16_to_f32(const uint16_t* in, float* out, int64_t count);
void bf16_to_f32(const uint16_t* in, float* out, int64_t count);
void f32_to_bf16(const float* in, uint16_t* out, int64_t count);
void f16_to_bf16(const uint16_t* in, uint16_t* out, int64_t count);

}  // namespace deltad
