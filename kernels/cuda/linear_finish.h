// Device code of the decode kernel: from a block's sums to outputs. With splits, or where a head's
// outputs are several blocks', each block leaves its sums in device memory, and the last to come
// adds them up in the order of the splits and finishes the outputs of all.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/linear_block.h"
#include "kernels/cuda/rotary.h"
#include "kernels/cuda/silu.h"

namespace deltad::cuda {

// Elements from one row of a block's sums to the next: rows of a fragment fall into banks 8 apart.
constexpr int32_t kSumsStride = kLinearOutputs + 8;

template <int kRows, int kLevels>
struct Finish {
  const LinearParams& p;
  const Block<kRows, kLevels>& block;
  Shared<float> base_sums;    // [kRows][kSumsStride]
  Shared<int32_t> sign_sums;  // [kLevels][kRows][kSumsStride]
  int32_t together;           // output blocks that are finished by one

  // Whether the block's sums are all that there is of its outputs.
  DELTAD_DEVICE bool alone() const { return p.splits == 1 && together == 1; }
  // Of the blocks that finish together.
  DELTAD_DEVICE int32_t first_finished() const {
    return first_output() / (together * kLinearOutputs) * (together * kLinearOutputs);
  }
  DELTAD_DEVICE int32_t first_output() const {
    return static_cast<int32_t>(blockIdx.y) * kLinearOutputs;
  }
  DELTAD_DEVICE int64_t part(int32_t split, int32_t row, int32_t output) const {
    return (static_cast<int64_t>(split) * p.rows + block.row0 + row) * linear_widest(p) + output;
  }
  DELTAD_DEVICE int64_t sign_part(int32_t split, int32_t level, int32_t row, int32_t output) const {
    return part(split * kLevels + level, row, output);
  }

  // Another block's row, whose weight is its variant's.
  DELTAD_DEVICE bool elsewhere(int32_t row) const {
    return p.dense != nullptr && load_shared(block.slot + row) == kElsewhere;
  }

  // Whether this block is the last of its outputs' splits (and of those that finish together); then
  // all sums are there to read.
  DELTAD_DEVICE bool leave_sums() const {
    const auto split = static_cast<int32_t>(blockIdx.z);
    for (int32_t i = block.thread; i < block.rows * kLinearOutputs; i += kLinearThreads) {
      const int32_t row = i / kLinearOutputs, output = first_output() + i % kLinearOutputs;
      const int32_t at = row * kSumsStride + i % kLinearOutputs;
      if (!in_bounds(output < block.outputs) || elsewhere(row)) continue;
      store_global(p.base_parts + part(split, row, output), load_shared(base_sums + at));
      for (int32_t l = 0; l < kLevels; ++l) {
        store_global(p.sign_parts + sign_part(split, l, row, output),
                     load_shared(sign_sums + (l * kRows * kSumsStride + at)));
      }
    }
    const auto set = static_cast<int32_t>(blockIdx.y) / together;
    int32_t* arrived = p.arrivals + (static_cast<unsigned>(set) * gridDim.x + blockIdx.x);
    const int32_t after = (block.outputs + kLinearOutputs - 1) / kLinearOutputs - set * together;
    const int32_t blocks = p.splits * (after < together ? after : together);
    __syncthreads();
    if (block.thread == 0) {
      store_shared(block.words, static_cast<uint32_t>(atomic_add_acq_rel(arrived, 1)));
    }
    __syncthreads();
    if (static_cast<int32_t>(load_shared(block.words)) + 1 < blocks) return false;
    if (block.thread == 0) store_global(arrived, 0);
    return true;
  }

  DELTAD_DEVICE float base_sum(int32_t row, int32_t output) const {
    if (alone()) {
      return load_shared(base_sums + (row * kSumsStride + output - first_output()));
    }
    float sum = load_global(p.base_parts + part(0, row, output));
    for (int32_t s = 1; s < p.splits; ++s) {
      sum = __fadd_rn(sum, load_global(p.base_parts + part(s, row, output)));
    }
    return sum;
  }
  DELTAD_DEVICE int32_t sign_sum(int32_t level, int32_t row, int32_t output) const {
    if (alone()) {
      return load_shared(sign_sums +
                         ((level * kRows + row) * kSumsStride + output - first_output()));
    }
    int32_t sum = 0;
    for (int32_t s = 0; s < p.splits; ++s) {
      sum += load_global(p.sign_parts + sign_part(s, level, row, output));
    }
    return sum;
  }

  // One output before the epilogue: base + Σ_level α · sign sum.
  DELTAD_DEVICE float value(int32_t row, int32_t output) const {
    float y = base_sum(row, output);
    if (kLevels == 0) return y;
    const int32_t slot = load_shared(block.slot + row);
    if (slot < 0) return y;
    const SignSlot* own = p.slots + slot;
    for (int32_t l = 0; l < kLevels; ++l) {
      if (load_global(&own->signs[l]) == nullptr) break;
      const int32_t all = load_global(p.plane_sum + block.row0 + row);
      const float scale = load_global(p.plane_scale + block.row0 + row);
      const int32_t sum = 2 * sign_sum(l, row, output) - all;
      const float alpha = load_global(load_global(&own->alpha[l]) + output);
      y = __fmaf_rn(alpha, __fmul_rn(static_cast<float>(sum), scale), y);
    }
    return y;
  }

  DELTAD_DEVICE void store_floats() const {
    auto* out = static_cast<float*>(p.out);
    for (int32_t i = block.thread; i < block.rows * kLinearOutputs; i += kLinearThreads) {
      const int32_t row = i / kLinearOutputs, output = first_output() + i % kLinearOutputs;
      if (!in_bounds(output < block.outputs) || elsewhere(row)) continue;
      float* at = out + (block.row0 + row) * p.out_stride + output;
      float y = value(row, output);
      if (p.epilogue == LinearEpilogue::kAddResidual) y = __fadd_rn(load_global(at), y);
      store_global(at, y);
    }
  }

  // Two neighbours a thread; gates and ups are 16 outputs apart.
  DELTAD_DEVICE void store_gated() const {
    auto* out = static_cast<uint16_t*>(p.out);
    constexpr int32_t kPairs = kLinearOutputs / 4;
    for (int32_t i = block.thread; i < block.rows * kPairs; i += kLinearThreads) {
      const int32_t row = i / kPairs, j = 2 * (i % kPairs);  // of the block's 32 results
      const int32_t gate = first_output() + 32 * (j / 16) + j % 16;
      if (!in_bounds(gate < block.outputs) || elsewhere(row)) continue;
      const float low = __fmul_rn(silu(value(row, gate)), value(row, gate + 16));
      const float high = __fmul_rn(silu(value(row, gate + 1)), value(row, gate + 17));
      uint16_t* at = out + (block.row0 + row) * p.out_stride + first_output() / 2 + j;
      store_global(reinterpret_cast<uint32_t*>(at), pack_bf16x2(low, high));
    }
  }

  // Values of whole heads go through shared memory, where the block's own sums were: a thread puts
  // each where it had been read from, or all sums have been left.
  DELTAD_DEVICE void store_rotated() const {
    const int32_t width = together * kLinearOutputs, stride = width + kSumsStride - kLinearOutputs;
    const int32_t first = first_finished(), head_dim = p.rope.head_dim;
    for (int32_t i = block.thread; i < block.rows * width; i += kLinearThreads) {
      const int32_t row = i / width, output = first + i % width;
      if (!in_bounds(output < block.outputs) || elsewhere(row)) continue;
      store_shared(base_sums + (row * stride + i % width), value(row, output));
    }
    __syncthreads();
    // Eight values of a head at a time, and of its padding in the cache.
    const int32_t units = padded_head_dim(head_dim) / 8, heads = width / head_dim;
    for (int32_t i = block.thread; i < block.rows * heads * units; i += kLinearThreads) {
      const int32_t row = i / units / heads, in_set = i / units % heads;
      const int32_t head = first / head_dim + in_set;
      if (!in_bounds(head < p.rope.heads + 2 * p.rope.kv_heads) || elsewhere(row)) continue;
      const Shared<float> values = base_sums + (row * stride + in_set * head_dim);
      if (head < p.rope.heads + p.rope.kv_heads) {
        store_rotated_pairs(row, head, values, i % units);
      } else {
        append_values(row, head - p.rope.heads - p.rope.kv_heads, values, i % units);
      }
    }
  }

  // Where the row's position of a kv head begins in the cache.
  DELTAD_DEVICE uint16_t* cache_part(int32_t row, int32_t kv_head) const {
    const RowPlace* place = p.rope.places + block.row0 + row;
    const int32_t kv_block = load_global(p.rope.block_table + load_global(&place->first_block) +
                                         load_global(&place->position) / kKvTokens);
    const int64_t head_values = kv_head_values(padded_head_dim(p.rope.head_dim));
    return p.rope.cache + (int64_t{kv_block} * p.rope.kv_heads + kv_head) * head_values;
  }

  // Pairs 4·unit … of a head of q or k, or eight dimensions of its padding.
  DELTAD_DEVICE void store_rotated_pairs(int32_t row, int32_t head, Shared<float> values,
                                         int32_t unit) const {
    const int32_t head_dim = p.rope.head_dim, half = head_dim / 2;
    const int32_t position = load_global(&p.rope.places[block.row0 + row].position);
    const bool is_query = head < p.rope.heads;
    RotatedPairs r = {make_float4(0, 0, 0, 0), make_float4(0, 0, 0, 0)};
    int32_t low = 4 * unit, high = half + low;
    if (in_bounds(low < half)) {
      const float* angles = p.rope.cos_sin + static_cast<int64_t>(position) * head_dim + low;
      r = rotate({load_shared(shared_cast<float4>(values + low)),
                  load_shared(shared_cast<float4>(values + high))},
                 load_global(reinterpret_cast<const float4*>(angles)),
                 load_global(reinterpret_cast<const float4*>(angles + half)));
    } else {
      if (is_query) return;
      low = 8 * unit;
      high = low + 4;
    }
    if (is_query) {
      float* to = p.rope.qkv + (block.row0 + row) * p.rope.qkv_stride + head * head_dim;
      store_global(reinterpret_cast<float4*>(to + low), r.low);
      store_global(reinterpret_cast<float4*>(to + high), r.high);
    } else {
      uint16_t* part = cache_part(row, head - p.rope.heads);
      append_key(part, position % kKvTokens, low, r.low);
      append_key(part, position % kKvTokens, high, r.high);
    }
  }

  // Dimensions 8·unit … of a value.
  DELTAD_DEVICE void append_values(int32_t row, int32_t kv_head, Shared<float> values,
                                   int32_t unit) const {
    const int32_t token = load_global(&p.rope.places[block.row0 + row].position) % kKvTokens;
    uint16_t* part = cache_part(row, kv_head);
    const int32_t padded_dim = padded_head_dim(p.rope.head_dim);
    for (int32_t dim = 8 * unit; dim < 8 * unit + 8; dim += 4) {
      float4 v = make_float4(0, 0, 0, 0);
      if (in_bounds(dim < p.rope.head_dim)) v = load_shared(shared_cast<float4>(values + dim));
      append_value(part, token, dim, padded_dim, v);
    }
  }

  DELTAD_DEVICE void run() const {
    if (!alone() && !leave_sums()) return;
    if (p.epilogue == LinearEpilogue::kRotary) {
      store_rotated();
    } else if (p.epilogue == LinearEpilogue::kSiluGate) {
      store_gated();
    } else {
      store_floats();
    }
  }
};

}  // namespace deltad::cuda
