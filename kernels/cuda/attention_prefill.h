// Attention of prompt rows over the paged cache, causal, with an online softmax: a block takes up
// to 64 rows of one sequence and one query head, a warp 16 of them, and walks the positions in
// tiles from 0 on. Tiles begin at multiples of their size, so a row meets the same positions in the
// same order whatever its neighbours are and however the prompt was cut into chunks.
//
// Queries and weights are rounded to bf16, sums are fp32. A query is rotated in qkv.
#pragma once

#include <cstdint>

#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/launch.h"

namespace deltad::cuda {

constexpr int32_t kPrefillRows = 64;

// Rows first_row … of the batch at positions first_position … of their sequence, whose blocks begin
// at block_table[first_block].
struct PrefillTile {
  int32_t first_row, rows;  // at most kPrefillRows
  int32_t first_position;
  int32_t first_block;
};

struct AttentionPrefillParams {
  const float* qkv;  // [rows, qkv_stride], rows 16-byte aligned
  const PrefillTile* tiles;
  const int32_t* block_table;  // all sequences' blocks
  const uint16_t* cache;       // the layer's: [blocks][kv_heads][kv_head_values]
  uint16_t* out;               // bf16 [rows, out_stride], rows 4-byte aligned
  int64_t qkv_stride, out_stride;
  int32_t tile_count;
  int32_t heads, kv_heads;
  int32_t head_dim;  // a multiple of 8, at most 256
  int32_t q_offset;  // a multiple of 4
  float scale;       // of the scores, times log2(e)
};

constexpr int32_t kPrefillWarps = kPrefillRows / 16;
constexpr uint32_t kPrefillThreads = 32 * kPrefillWarps;
constexpr int32_t kPrefillStages = 2;

// Blocks of positions in a tile: as shared memory and registers allow.
DELTAD_HOST_DEVICE constexpr int32_t prefill_tile_blocks(int32_t padded_dim) {
  return padded_dim <= 128 ? 4 : 2;
}

// Query fragments of each warp, and the stages of keys and values.
constexpr uint32_t attention_prefill_shared(int32_t padded_dim) {
  return static_cast<uint32_t>(kPrefillWarps * padded_dim / 16 * 512 +
                               kPrefillStages * prefill_tile_blocks(padded_dim) *
                                   kv_head_values(padded_dim) * 2);
}

// Heads of one kv head are neighbours in time, so that keys and values come from L2.
inline Launch attention_prefill_launch(const AttentionPrefillParams& p) {
  return {{static_cast<uint32_t>(p.heads), static_cast<uint32_t>(p.tile_count)},
          {kPrefillThreads},
          attention_prefill_shared(padded_head_dim(p.head_dim))};
}

// The kernel for a padded head size.
constexpr const char* attention_prefill_kernel(int32_t padded_dim) {
  return padded_dim == 64    ? "deltad_attention_prefill_d64"
         : padded_dim == 96  ? "deltad_attention_prefill_d96"
         : padded_dim == 128 ? "deltad_attention_prefill_d128"
         : padded_dim == 192 ? "deltad_attention_prefill_d192"
                             : "deltad_attention_prefill_d256";
}

}  // namespace deltad::cuda
