#include "kernels/cuda/attention_decode.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/split_bf16.h"

namespace deltad::cuda {
namespace {

template <int kDim>
struct Decode {
  static constexpr int32_t kPartSize = attention_part_size(kDim);
  // Dimensions whose keys (or values) a warp has under way at once, as registers allow.
  static constexpr int32_t kAtOnce = kDim <= 128 ? kDim : kDim / 2;

  const AttentionDecodeParams& p;
  int32_t thread, lane, warp, row, kv_head, first_head, heads;  // the block's heads
  int32_t length, segments;                                     // of the row's context
  Shared<uint4> query;                                          // [kDim / 16][32] fragments of A
  Shared<float> warp_parts;                                     // [warps][8][kPartSize]
  Shared<uint32_t> word;

  DELTAD_DEVICE explicit Decode(const AttentionDecodeParams& params) : p(params) {
    thread = static_cast<int32_t>(threadIdx.x);
    lane = thread % 32;
    warp = thread / 32;
    row = static_cast<int32_t>(blockIdx.z);
    const int32_t group = p.heads / p.kv_heads;
    const int32_t tiles = (group + kHeadTile - 1) / kHeadTile;
    kv_head = static_cast<int32_t>(blockIdx.y) / tiles;
    const int32_t in_group = static_cast<int32_t>(blockIdx.y) % tiles * kHeadTile;
    first_head = kv_head * group + in_group;
    heads = group - in_group < kHeadTile ? group - in_group : kHeadTile;
    wait_for_previous_kernel();
    length = load_global(&p.places[row].position) + 1;
    segments = (length + kSegment - 1) / kSegment;
    query = dynamic_shared<uint4>();
    warp_parts = shared_cast<float>(query + kDim / 16 * 32);
    word = shared_cast<uint32_t>(warp_parts + kAttentionWarps * kHeadTile * kPartSize);
  }

  // Fragment i: dimensions 32(i/2) + 8t + 4(i%2) … +3 of lane 4g + t, which matches the keys'
  // order.
  DELTAD_DEVICE void load_query() const {
    for (int32_t i = warp; i < kDim / 16; i += kAttentionWarps) {
      const int32_t head = lane / 4, dim = i / 2 * 32 + lane % 4 * 8 + i % 2 * 4;
      float4 q = make_float4(0, 0, 0, 0);
      if (in_bounds(head < heads)) {
        if (in_bounds(dim < p.head_dim)) {
          q = load_global(reinterpret_cast<const float4*>(p.qkv + row * p.qkv_stride + p.q_offset +
                                                          (first_head + head) * p.head_dim + dim));
        }
      }
      const SplitPair a = split_bf16(__fmul_rn(q.x, p.scale), __fmul_rn(q.y, p.scale));
      const SplitPair b = split_bf16(__fmul_rn(q.z, p.scale), __fmul_rn(q.w, p.scale));
      store_shared(query + (32 * i + lane), make_uint4(a.upper, a.lower, b.upper, b.lower));
    }
  }

  // The warp's blocks of the segment: every fourth. Leaves its part in shared memory.
  DELTAD_DEVICE void attend(int32_t segment) const {
    const int32_t first_block = load_global(&p.places[row].first_block);
    const int32_t end =
        segment * kSegment + kSegment < length ? segment * kSegment + kSegment : length;
    float out[kDim / 8][4] = {};
    float top = kNoScore, sum = 0;
    for (int32_t b = segment * (kSegment / kKvTokens) + warp; in_bounds(b * kKvTokens < end);
         b += kAttentionWarps) {
      const int64_t block = load_global(p.block_table + first_block + b);
      const auto* keys = reinterpret_cast<const uint4*>(p.cache + (block * p.kv_heads + kv_head) *
                                                                      kv_head_values(kDim)) +
                         lane;
      const uint4* values = keys + kDim / 32 * 64;
      uint4 k[kAtOnce / 16], v[kAtOnce / 16];
      const auto load = [&](uint4(&to)[kAtOnce / 16], const uint4* from) {
        DELTAD_UNROLL
        for (int32_t i = 0; i < kAtOnce / 16; ++i) to[i] = load_global(from + 32 * i);
      };
      load(k, keys);
      if (kAtOnce == kDim) load(v, values);

      float scores[2][4] = {};
      DELTAD_UNROLL
      for (int32_t dim = 0; dim < kDim; dim += kAtOnce) {
        if (dim > 0) load(k, keys + dim / 32 * 64);
        DELTAD_UNROLL
        for (int32_t i = 0; i < kAtOnce / 16; ++i) {
          const uint4 q = load_shared(query + (32 * (dim / 16 + i) + lane));
          const uint32_t a[4] = {q.x, q.y, q.z, q.w};
          DELTAD_UNROLL
          for (int32_t half = 0; half < 2; ++half) {
            const uint4 both = k[i / 2 * 2 + half];
            const uint32_t key[2] = {i % 2 == 0 ? both.x : both.z, i % 2 == 0 ? both.y : both.w};
            mma_m16n8k16_bf16(scores[half], a, key);
          }
        }
      }
      float weights[2][2];
      float highest = top;
      DELTAD_UNROLL
      for (int32_t half = 0; half < 2; ++half) {
        DELTAD_UNROLL
        for (int32_t e = 0; e < 2; ++e) {
          const bool there = in_bounds(b * kKvTokens + token_of(lane, half, e) < end);
          weights[half][e] = there ? __fadd_rn(scores[half][e], scores[half][2 + e]) : kNoScore;
          highest = fmaxf(highest, weights[half][e]);
        }
      }
      highest = max_of_row(highest);
      const float fade = exp2f(top - highest);
      top = highest;
      sum = __fmul_rn(sum, fade);
      uint32_t a[4];
      DELTAD_UNROLL
      for (int32_t half = 0; half < 2; ++half) {
        const float first = exp2f(weights[half][0] - top), second = exp2f(weights[half][1] - top);
        sum = __fadd_rn(sum, __fadd_rn(first, second));
        const SplitPair pair = split_bf16(first, second);
        a[2 * half] = pair.upper;
        a[2 * half + 1] = pair.lower;
      }
      DELTAD_UNROLL
      for (int32_t i = 0; i < kDim / 8; ++i) {
        for (float& o : out[i]) o = __fmul_rn(o, fade);
      }
      DELTAD_UNROLL
      for (int32_t dim = 0; dim < kDim; dim += kAtOnce) {
        if (kAtOnce != kDim) load(v, values + dim / 16 * 32);
        DELTAD_UNROLL
        for (int32_t i = 0; i < kAtOnce / 16; ++i) {
          const uint4 kept = first_tokens(v[i], lane, end - b * kKvTokens);
          const uint32_t low[2] = {kept.x, kept.y}, high[2] = {kept.z, kept.w};
          mma_m16n8k16_bf16(out[dim / 8 + 2 * i], a, low);
          mma_m16n8k16_bf16(out[dim / 8 + 2 * i + 1], a, high);
        }
      }
    }
    sum = sum_of_row(sum);
    const Shared<float> part = warp_parts + (warp * kHeadTile + lane / 4) * kPartSize;
    DELTAD_UNROLL
    for (int32_t i = 0; i < kDim / 8; ++i) {
      store_shared(shared_cast<float2>(part + (8 * i + lane % 4 * 2)),
                   make_float2(__fadd_rn(out[i][0], out[i][2]), __fadd_rn(out[i][1], out[i][3])));
    }
    if (lane % 4 == 0) store_shared(shared_cast<float2>(part + kDim), make_float2(top, sum));
  }

  DELTAD_DEVICE float* part_of(int32_t head, int32_t segment) const {
    return p.parts +
           ((static_cast<int64_t>(row) * p.heads + first_head + head) * p.segments + segment) *
               kPartSize;
  }

  // Adds `count` parts in order, two dimensions a thread; load(i, element) reads two elements of a
  // head's part i.
  struct Sums {
    float2 values;
    float top, sum;
  };
  template <class Load>
  DELTAD_DEVICE static Sums add_parts(int32_t count, int32_t dim, Load load) {
    float top = kNoScore;
    for (int32_t i = 0; i < count; ++i) top = fmaxf(top, load(i, kDim).x);
    Sums all = {make_float2(0, 0), top, 0};
    for (int32_t i = 0; i < count; ++i) {
      const float2 tail = load(i, kDim), values = load(i, dim);
      const float weight = exp2f(tail.x - top);
      all.sum = __fmaf_rn(weight, tail.y, all.sum);
      all.values.x = __fmaf_rn(weight, values.x, all.values.x);
      all.values.y = __fmaf_rn(weight, values.y, all.values.y);
    }
    return all;
  }

  DELTAD_DEVICE void store(int32_t head, int32_t dim, const Sums& all) const {
    if (!in_bounds(dim < p.head_dim)) return;
    uint16_t* at = p.out + row * p.out_stride + (first_head + head) * p.head_dim + dim;
    store_global(reinterpret_cast<uint32_t*>(at),
                 pack_bf16x2(all.values.x / all.sum, all.values.y / all.sum));
  }

  // Whether this block is the last of its row and heads; then all parts are there to read.
  DELTAD_DEVICE bool last_to_come() const {
    int32_t* arrived = p.arrivals + blockIdx.z * gridDim.y + blockIdx.y;
    __syncthreads();
    if (thread == 0) {
      store_shared(word, static_cast<uint32_t>(atomic_add_acq_rel(arrived, 1)));
    }
    __syncthreads();
    if (static_cast<int32_t>(load_shared(word)) + 1 < segments) return false;
    if (thread == 0) store_global(arrived, 0);
    return true;
  }

  DELTAD_DEVICE void run() const {
    const auto segment = static_cast<int32_t>(blockIdx.x);
    if (!in_bounds(segment < segments)) return;
    load_query();
    __syncthreads();
    attend(segment);
    let_next_kernel_start();
    __syncthreads();
    constexpr int32_t kPairs = kDim / 2;
    constexpr auto kStride = static_cast<int32_t>(kAttentionThreads);
    for (int32_t i = thread; i < heads * kPairs; i += kStride) {
      const int32_t head = i / kPairs, dim = i % kPairs * 2;
      const Sums all = add_parts(kAttentionWarps, dim, [&](int32_t w, int32_t element) {
        return load_shared(
            shared_cast<float2>(warp_parts + ((w * kHeadTile + head) * kPartSize + element)));
      });
      if (segments == 1) {
        store(head, dim, all);
        continue;
      }
      float* part = part_of(head, segment);
      store_global(reinterpret_cast<float2*>(part + dim), all.values);
      if (dim == 0) {
        store_global(reinterpret_cast<float2*>(part + kDim), make_float2(all.top, all.sum));
      }
    }
    if (segments == 1 || !last_to_come()) return;
    for (int32_t i = thread; i < heads * kPairs; i += kStride) {
      const int32_t head = i / kPairs, dim = i % kPairs * 2;
      store(head, dim, add_parts(segments, dim, [&](int32_t s, int32_t element) {
              return load_global(reinterpret_cast<const float2*>(part_of(head, s) + element));
            }));
    }
  }
};

}  // namespace

extern "C" {

__global__ void __launch_bounds__(kAttentionThreads, 3)
    deltad_attention_decode_d64(AttentionDecodeParams p) {
  Decode<64>(p).run();
}
__global__ void __launch_bounds__(kAttentionThreads, 3)
    deltad_attention_decode_d96(AttentionDecodeParams p) {
  Decode<96>(p).run();
}
__global__ void __launch_bounds__(kAttentionThreads, 3)
    deltad_attention_decode_d128(AttentionDecodeParams p) {
  Decode<128>(p).run();
}
__global__ void __launch_bounds__(kAttentionThreads, 2)
    deltad_attention_decode_d192(AttentionDecodeParams p) {
  Decode<192>(p).run();
}
__global__ void __launch_bounds__(kAttentionThreads, 2)
    deltad_attention_decode_d256(AttentionDecodeParams p) {
  Decode<256>(p).run();
}

}  // extern "C"

}  // namespace deltad::cuda
