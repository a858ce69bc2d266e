// The inside of a KV block: for each kv head the keys, then the values, of 16 positions, in bf16.
//   key   (t, d): (d/2)·32 + t·2 + d%2        a register holds two dimensions of all 16 positions
//   value (t, d): (t/2)·2·P + d·2 + t%2       a register holds 16 dimensions of two positions
// counted in bf16 values; P is head_dim padded to 16. So both products of attention run along
// whole registers: scores of 16 positions, outputs of 16 dimensions.
#pragma once

#include <cstdint>

namespace deltad::cpu {

constexpr int kKvTokens = 16;
constexpr int kMaxHeadDim = 256;

// Plain numbers instead of functions where files compiled for several instruction sets share them.
struct KvLayout {
  int head_dim, padded_dim;
  int64_t value_offset;  // from a head's keys to its values
  int64_t head_size;     // from one head's part to the next

  explicit constexpr KvLayout(int dim)
      : head_dim(dim),
        padded_dim((dim + 15) / 16 * 16),
        value_offset(int64_t{kKvTokens} * dim),
        head_size(int64_t{kKvTokens} * (dim + padded_dim)) {}
};

}  // namespace deltad::cpu
