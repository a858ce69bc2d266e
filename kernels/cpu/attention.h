// Causal attention of up to kAttentionRows query rows of one sequence that share a kv head, over a
// paged cache (kernels/cpu/kv_layout.h).
//
// The context is cut into segments of kSegment positions, by absolute position. A segment gives
// each row a partial result (maximum, sum, weighted values); partial results are combined in the
// order of the segments. A row's arithmetic therefore follows from its own position alone: not from
// the other rows of its tile, nor from which thread computed which segment.
//
// fp32 throughout, on the cache's bf16 keys and values, for every instruction set: vdpbf16ps would
// round queries and weights for no gain where it issues every second cycle while fp32 products
// issue twice a cycle (measured on Emerald Rapids: 87 against 179 GFLOP/s a core).
#pragma once

#include <cstdint>

#include "kernels/cpu/kv_layout.h"

namespace deltad {
enum class Isa;
}

namespace deltad::cpu {

constexpr int kAttentionRows = 12;
constexpr int kSegment = 256;
constexpr int kSegmentBlocks = kSegment / kKvTokens;

struct AttentionTile {
  const uint16_t* cache;  // the kv head's keys in block 0 of the layer
  int64_t block_stride;   // bf16 values from a block to the next
  const int32_t* blocks;  // of the sequence
  int head_dim, padded_dim;
  float scale;  // of the scores, times log2(e): the softmax is computed in powers of two
  int rows;
  const float* query[kAttentionRows];  // each [head_dim]
  int32_t length[kAttentionRows];      // positions that the row attends to, from 0; ascending
  // For fetching in time, no result depends on it: the worker reads blocks up to end_block, then
  // probably those of next_cache and next_blocks (never null).
  int32_t end_block;
  const uint16_t* next_cache;
  const int32_t* next_blocks;
  int32_t next_block_count;  // at least 1
};

// A row's partial result: [padded_dim] weighted values, then the maximum, then the sum of weights.
constexpr int kPartialTail = 16;
constexpr int64_t kMaxPartial = kMaxHeadDim + kPartialTail;

// What one worker needs at hand.
struct AttentionScratch {
  alignas(64) float query[kAttentionRows * kMaxHeadDim];  // scaled
  alignas(64) float scores[kAttentionRows * kSegment];    // then weights
};

struct AttentionKernels {
  // Puts the tile's queries into scratch, for the segments that follow.
  void (*prepare)(const AttentionTile& tile, AttentionScratch& scratch);
  // Writes row r's partial result of segment `segment` at partial + r·(padded_dim + kPartialTail);
  // rows that end before the segment are left alone.
  void (*segment)(const AttentionTile& tile, AttentionScratch& scratch, int segment,
                  float* partial);
  // sum ← sum combined with the next segment's partial result.
  void (*combine)(float* sum, const float* next, int padded_dim);
  // out [head_dim], bf16 for avx512_bf16, else fp32.
  void (*finish)(void* out, const float* sum, int head_dim, int padded_dim);
};

const AttentionKernels& attention_kernels(Isa isa);

}  // namespace deltad::cpu
