// The paged KV cache in device memory, one layer of it. A block holds 16 positions of all kv heads;
// its inside is in the order in which the tensor core's B operands want it, so that a warp reads
// whole lines of 512 bytes straight into its fragments (docs/kernels.md draws them):
//   keys    [padded_dim / 32][2][32 lanes] 16 bytes. Lane 4g + t of half n holds position
//           4(g/2) + 2n + g%2: dimensions 8t … 8t+7 of the step of 32.
//   values  [padded_dim / 16][32 lanes] 16 bytes. Lane 4g + t holds positions 4t … 4t+3, first of
//           dimension g, then of dimension 8 + g of the step of 16.
// bf16. Dimensions are padded with zeros to padded_head_dim().
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace deltad::cuda {

constexpr int32_t kKvTokens = 16;

// Sizes that attention has kernels for; a head takes the next one. 0: too large.
DELTAD_HOST_DEVICE constexpr int32_t padded_head_dim(int32_t head_dim) {
  return head_dim <= 64    ? 64
         : head_dim <= 96  ? 96
         : head_dim <= 128 ? 128
         : head_dim <= 192 ? 192
         : head_dim <= 256 ? 256
                           : 0;
}

// In bf16 values: one kv head of a block, keys and values.
DELTAD_HOST_DEVICE constexpr int64_t kv_head_values(int32_t padded_dim) {
  return int64_t{2} * kKvTokens * padded_dim;
}
// From the start of a kv head's part of a block. The 8 dimensions of a key beginning at a multiple
// of 8 lie side by side.
DELTAD_HOST_DEVICE constexpr int32_t key_index(int32_t token, int32_t dim) {
  const int32_t half = token / 2 % 2, g = token / 4 * 2 + token % 2, t = dim % 32 / 8;
  return ((dim / 32 * 2 + half) * 32 + 4 * g + t) * 8 + dim % 8;
}
DELTAD_HOST_DEVICE constexpr int32_t value_index(int32_t token, int32_t dim, int32_t padded_dim) {
  const int32_t g = dim % 8, half = dim / 8 % 2, t = token / 4;
  return kKvTokens * padded_dim + (dim / 16 * 32 + 4 * g + t) * 8 + 4 * half + token % 4;
}

// Where a row of the batch stands in its sequence, and where in the block table its sequence's
// blocks begin: position q lies in block_table[first_block + q / 16].
struct RowPlace {
  int32_t position;
  int32_t first_block;
};

}  // namespace deltad::cuda
