// Device code of the decode kernel: from a block's sums to outputs. With splits, each block leaves
// its sums in device memory, and the last to come adds them up in the order of the splits.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/linear_block.h"
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

  // Whether this block is the last of its outputs' splits; then all sums are there to read.
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
    int32_t* arrived = p.arrivals + blockIdx.y * gridDim.x + blockIdx.x;
    __syncthreads();
    if (block.thread == 0) {
      store_shared(block.words, static_cast<uint32_t>(atomic_add_acq_rel(arrived, 1)));
    }
    __syncthreads();
    if (static_cast<int32_t>(load_shared(block.words)) + 1 < p.splits) return false;
    if (block.thread == 0) store_global(arrived, 0);
    return true;
  }

  DELTAD_DEVICE float base_sum(int32_t row, int32_t output) const {
    if (p.splits == 1) {
      return load_shared(base_sums + (row * kSumsStride + output - first_output()));
    }
    float sum = load_global(p.base_parts + part(0, row, output));
    for (int32_t s = 1; s < p.splits; ++s) {
      sum = __fadd_rn(sum, load_global(p.base_parts + part(s, row, output)));
    }
    return sum;
  }
  DELTAD_DEVICE int32_t sign_sum(int32_t level, int32_t row, int32_t output) const {
    if (p.splits == 1) {
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

  DELTAD_DEVICE void run() const {
    if (p.splits > 1 && !leave_sums()) return;
    if (p.epilogue == LinearEpilogue::kSiluGate) {
      store_gated();
    } else {
      store_floats();
    }
  }
};

}  // namespace deltad::cuda
