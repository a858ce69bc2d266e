// Rotates q and k of each row of qkv by its position (pairs i and i + head_dim/2) and appends k and
// v, rounded to bf16, to the paged cache. A block a row; four pairs or values a thread.
#pragma once

#include <cstdint>

#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/launch.h"

namespace deltad::cuda {

struct RopeAppendParams {
  float* qkv;              // [rows, qkv_stride], rows 16-byte aligned; q and k are rotated there
  const float* cos_sin;    // [positions, head_dim]: head_dim/2 cosines, then as many sines
  const RowPlace* places;  // [rows]
  const int32_t* block_table;  // all sequences' blocks
  uint16_t* cache;             // the layer's: [blocks][kv_heads][kv_head_values]
  int64_t qkv_stride;
  int32_t rows;
  int32_t heads, kv_heads;
  int32_t head_dim;                      // a multiple of 8, at most 256
  int32_t q_offset, k_offset, v_offset;  // columns of qkv, multiples of 4
};

constexpr uint32_t kRopeAppendThreads = 256;
constexpr char kRopeAppendKernel[] = "deltad_rope_append";

inline Launch rope_append_launch(const RopeAppendParams& p) {
  return {{static_cast<uint32_t>(p.rows)}, {kRopeAppendThreads}, 0};
}

}  // namespace deltad::cuda
