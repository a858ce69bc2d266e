// Attention of generated rows over the paged cache: each row over its own sequence, positions 0 to
// its own. A block takes a segment of kSegment positions, by absolute position, of one row and up
// to eight query heads of one kv head; the last block of a row's to come adds the segments' partial
// results in order. Nothing in a row's arithmetic depends on other rows.
//
// Queries and weights are split into two bf16, so that scores and outputs keep 16 bits: the mma's
// rows 0 … 7 are the heads' upper parts, rows 8 … 15 the lower. A query is rotated in qkv.
#pragma once

#include <cstdint>

#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/launch.h"

namespace deltad::cuda {

struct AttentionDecodeParams {
  const float* qkv;            // [rows, qkv_stride], rows 16-byte aligned
  const RowPlace* places;      // [rows]
  const int32_t* block_table;  // all sequences' blocks
  const uint16_t* cache;       // the layer's: [blocks][kv_heads][kv_head_values]
  uint16_t* out;               // bf16 [rows, out_stride], rows 4-byte aligned
  float* parts;                // [rows, heads, segments, attention_part_size]
  int32_t* arrivals;           // [rows, kv_heads · head tiles], all zero before and after
  int64_t qkv_stride, out_stride;
  int32_t rows;
  int32_t heads, kv_heads;
  int32_t head_dim;  // a multiple of 8, at most 256
  int32_t q_offset;  // a multiple of 4
  int32_t segments;  // that the longest row's context has, or more
  float scale;       // of the scores, times log2(e)
};

constexpr int32_t kSegment = 256;
constexpr int32_t kAttentionWarps = 4;
constexpr uint32_t kAttentionThreads = 32 * kAttentionWarps;
constexpr int32_t kHeadTile = 8;

constexpr int32_t attention_head_tiles(int32_t heads, int32_t kv_heads) {
  return (heads / kv_heads + kHeadTile - 1) / kHeadTile;
}
// Weighted values, then the maximum, the sum of weights, and room that keeps heads in other banks.
DELTAD_HOST_DEVICE constexpr int32_t attention_part_size(int32_t padded_dim) {
  return padded_dim + 8;
}

// Query fragments, each warp's part, and a word.
constexpr uint32_t attention_decode_shared(int32_t padded_dim) {
  return static_cast<uint32_t>(padded_dim / 16 * 512 +
                               kAttentionWarps * kHeadTile * attention_part_size(padded_dim) * 4 +
                               16);
}

inline Launch attention_decode_launch(const AttentionDecodeParams& p) {
  return {{static_cast<uint32_t>(p.segments),
           static_cast<uint32_t>(p.kv_heads * attention_head_tiles(p.heads, p.kv_heads)),
           static_cast<uint32_t>(p.rows)},
          {kAttentionThreads},
          attention_decode_shared(padded_head_dim(p.head_dim))};
}

// The kernel for a padded head size.
constexpr const char* attention_decode_kernel(int32_t padded_dim) {
  return padded_dim == 64    ? "deltad_attention_decode_d64"
         : padded_dim == 96  ? "deltad_attention_decode_d96"
         : padded_dim == 128 ? "deltad_attention_decode_d128"
         : padded_dim == 192 ? "deltad_attention_decode_d192"
                             : "deltad_attention_decode_d256";
}

}  // namespace deltad::cuda
