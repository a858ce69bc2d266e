// Rotary embedding of one head of one row, and the append of a rotated key and its value to a KV
// block (kernels/cpu/kv_layout.h).
#pragma once

#include <cstdint>

namespace deltad {
enum class Isa;
}

namespace deltad::cpu {

struct RopeKernels {
  // Rotates the pairs (i, i + head_dim/2) of x [head_dim] in place. cos_sin: head_dim/2 cosines,
  // then as many sines.
  void (*rotate)(float* x, const float* cos_sin, int head_dim);
  // Writes position `token` of the block's part for one kv head, rounded to bf16. key and value
  // fp32 [head_dim]. Other positions stay as they are, but two positions 2i and 2i+1 must not be
  // written at the same time.
  void (*append)(uint16_t* head_part, int token, const float* key, const float* value,
                 int head_dim);
};

const RopeKernels& rope_kernels(Isa isa);

}  // namespace deltad::cpu
