#include "kernels/cuda/attention_prefill.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/device.h"

namespace deltad::cuda {
namespace {

template <int kDim>
struct Prefill {
  static constexpr int32_t kBlocks = prefill_tile_blocks(kDim);
  static constexpr int32_t kBlockUnits = kKvTokens * kDim / 4;  // of 16 bytes: keys and values
  static constexpr int32_t kStageUnits = kBlocks * kBlockUnits;

  const AttentionPrefillParams& p;
  int32_t thread, lane, warp, head, kv_head;
  PrefillTile tile;
  int32_t length;        // positions that the last row sees
  Shared<uint4> query;   // [kDim / 16][32] fragments of A, the warp's
  Shared<uint4> stages;  // [2][kBlocks][kBlockUnits], blocks as the cache has them

  DELTAD_DEVICE explicit Prefill(const AttentionPrefillParams& params) : p(params) {
    thread = static_cast<int32_t>(threadIdx.x);
    lane = thread % 32;
    warp = thread / 32;
    head = static_cast<int32_t>(blockIdx.x);
    kv_head = head / (p.heads / p.kv_heads);
    wait_for_previous_kernel();
    // The longest first: small blocks fill up the end.
    const PrefillTile* own = p.tiles + (p.tile_count - 1 - static_cast<int32_t>(blockIdx.y));
    tile = {load_global(&own->first_row), load_global(&own->rows),
            load_global(&own->first_position), load_global(&own->first_block)};
    length = tile.first_position + tile.rows;
    query = dynamic_shared<uint4>() + warp * (kDim / 16 * 32);
    stages = dynamic_shared<uint4>() + kPrefillWarps * (kDim / 16 * 32);
  }

  // Four dimensions of a row's query, scaled, as two pairs of bf16.
  DELTAD_DEVICE uint2 query_pairs(int32_t row, int32_t dim) const {
    float4 q = make_float4(0, 0, 0, 0);
    if (in_bounds(row < tile.rows)) {
      if (in_bounds(dim < p.head_dim)) {
        q = load_global(reinterpret_cast<const float4*>(
            p.qkv + (tile.first_row + row) * p.qkv_stride + p.q_offset + head * p.head_dim + dim));
      }
    }
    return make_uint2(pack_bf16x2(__fmul_rn(q.x, p.scale), __fmul_rn(q.y, p.scale)),
                      pack_bf16x2(__fmul_rn(q.z, p.scale), __fmul_rn(q.w, p.scale)));
  }
  // Fragment i: dimensions 32(i/2) + 8t + 4(i%2) … +3 of rows g and g+8 for lane 4g + t, which
  // matches the keys' order. Each lane reads what itself wrote.
  DELTAD_DEVICE void load_query() const {
    for (int32_t i = 0; i < kDim / 16; ++i) {
      const int32_t dim = i / 2 * 32 + lane % 4 * 8 + i % 2 * 4;
      const uint2 upper = query_pairs(16 * warp + lane / 4, dim);
      const uint2 lower = query_pairs(16 * warp + lane / 4 + 8, dim);
      store_shared(query + (32 * i + lane), make_uint4(upper.x, lower.x, upper.y, lower.y));
    }
  }

  // All threads copy a tile of positions; blocks that no row sees become zeros.
  DELTAD_DEVICE void copy_tile(int32_t index) const {
    const Shared<uint4> stage = stages + index % kPrefillStages * kStageUnits;
    for (int32_t i = thread; i < kStageUnits; i += static_cast<int32_t>(kPrefillThreads)) {
      const int32_t b = index * kBlocks + i / kBlockUnits;
      const bool there = in_bounds(b * kKvTokens < length);
      const int64_t block = there ? load_global(p.block_table + tile.first_block + b) : 0;
      const auto* from = reinterpret_cast<const uint4*>(p.cache + (block * p.kv_heads + kv_head) *
                                                                      kv_head_values(kDim));
      cp_async_16_or_zero(stage + i, from + i % kBlockUnits, there);
    }
  }

  DELTAD_DEVICE void run() const {
    constexpr int32_t kPositions = kBlocks * kKvTokens;
    const int32_t count = (length + kPositions - 1) / kPositions;
    copy_tile(0);
    cp_async_commit();
    load_query();
    const int32_t position[2] = {tile.first_position + 16 * warp + lane / 4,
                                 tile.first_position + 16 * warp + lane / 4 + 8};
    float out[kDim / 8][4] = {};
    float top[2] = {kNoScore, kNoScore}, sum[2] = {};
    for (int32_t index = 0; index < count; ++index) {
      if (index + 1 < count) copy_tile(index + 1);  // to save time: beyond are zeros
      cp_async_commit();
      cp_async_wait<1>();
      __syncthreads();
      const Shared<uint4> stage = stages + index % kPrefillStages * kStageUnits + lane;

      float scores[2 * kBlocks][4] = {};
      DELTAD_UNROLL
      for (int32_t step = 0; step < kDim / 32; ++step) {
        uint32_t a[2][4];
        DELTAD_UNROLL
        for (int32_t i = 0; i < 2; ++i) {
          const uint4 q = load_shared(query + (32 * (2 * step + i) + lane));
          a[i][0] = q.x, a[i][1] = q.y, a[i][2] = q.z, a[i][3] = q.w;
        }
        DELTAD_UNROLL
        for (int32_t n = 0; n < 2 * kBlocks; ++n) {
          const uint4 k = load_shared(stage + (n / 2 * kBlockUnits + (2 * step + n % 2) * 32));
          const uint32_t first[2] = {k.x, k.y}, second[2] = {k.z, k.w};
          mma_m16n8k16_bf16(scores[n], a[0], first);
          mma_m16n8k16_bf16(scores[n], a[1], second);
        }
      }

      float highest[2] = {top[0], top[1]};
      DELTAD_UNROLL
      for (int32_t n = 0; n < 2 * kBlocks; ++n) {
        DELTAD_UNROLL
        for (int32_t e = 0; e < 4; ++e) {
          const int32_t at = index * kPositions + n / 2 * kKvTokens + token_of(lane, n % 2, e % 2);
          if (!in_bounds(at <= position[e / 2])) scores[n][e] = kNoScore;
          highest[e / 2] = fmaxf(highest[e / 2], scores[n][e]);
        }
      }
      float fade[2];
      DELTAD_UNROLL
      for (int32_t h = 0; h < 2; ++h) {
        highest[h] = max_of_row(highest[h]);
        fade[h] = exp2f(top[h] - highest[h]);
        top[h] = highest[h];
        sum[h] = __fmul_rn(sum[h], fade[h]);
      }
      DELTAD_UNROLL
      for (int32_t i = 0; i < kDim / 8; ++i) {
        DELTAD_UNROLL
        for (int32_t e = 0; e < 4; ++e) out[i][e] = __fmul_rn(out[i][e], fade[e / 2]);
      }

      DELTAD_UNROLL
      for (int32_t b = 0; b < kBlocks; ++b) {
        uint32_t a[4];
        DELTAD_UNROLL
        for (int32_t half = 0; half < 2; ++half) {
          DELTAD_UNROLL
          for (int32_t h = 0; h < 2; ++h) {
            const float* score = scores[2 * b + half] + 2 * h;
            const float first = exp2f(score[0] - top[h]), second = exp2f(score[1] - top[h]);
            sum[h] = __fadd_rn(sum[h], __fadd_rn(first, second));
            a[2 * half + h] = pack_bf16x2(first, second);
          }
        }
        const int32_t tokens = length - index * kPositions - b * kKvTokens;
        DELTAD_UNROLL
        for (int32_t i = 0; i < kDim / 16; ++i) {
          uint4 v = load_shared(stage + (b * kBlockUnits + kDim / 16 * 32 + 32 * i));
          if (tokens < kKvTokens) v = first_tokens(v, lane, tokens);
          const uint32_t low[2] = {v.x, v.y}, high[2] = {v.z, v.w};
          mma_m16n8k16_bf16(out[2 * i], a, low);
          mma_m16n8k16_bf16(out[2 * i + 1], a, high);
        }
      }
      __syncthreads();
    }

    let_next_kernel_start();
    DELTAD_UNROLL
    for (int32_t h = 0; h < 2; ++h) {
      const float all = sum_of_row(sum[h]);
      const int32_t row = 16 * warp + lane / 4 + 8 * h;
      if (!in_bounds(row < tile.rows)) continue;
      uint16_t* to = p.out + (tile.first_row + row) * p.out_stride + head * p.head_dim;
      DELTAD_UNROLL
      for (int32_t i = 0; i < kDim / 8; ++i) {
        const int32_t dim = 8 * i + lane % 4 * 2;
        if (!in_bounds(dim < p.head_dim)) continue;
        store_global(reinterpret_cast<uint32_t*>(to + dim),
                     pack_bf16x2(out[i][2 * h] / all, out[i][2 * h + 1] / all));
      }
    }
  }
};

}  // namespace

extern "C" {

__global__ void __launch_bounds__(kPrefillThreads, 2)
    deltad_attention_prefill_d64(AttentionPrefillParams p) {
  Prefill<64>(p).run();
}
__global__ void __launch_bounds__(kPrefillThreads, 2)
    deltad_attention_prefill_d96(AttentionPrefillParams p) {
  Prefill<96>(p).run();
}
__global__ void __launch_bounds__(kPrefillThreads, 2)
    deltad_attention_prefill_d128(AttentionPrefillParams p) {
  Prefill<128>(p).run();
}
__global__ void __launch_bounds__(kPrefillThreads, 2)
    deltad_attention_prefill_d192(AttentionPrefillParams p) {
  Prefill<192>(p).run();
}
__global__ void __launch_bounds__(kPrefillThreads, 2)
    deltad_attention_prefill_d256(AttentionPrefillParams p) {
  Prefill<256>(p).run();
}

}  // extern "C"

}  // namespace deltad::cuda
