// Device code of the prefill kernels: which rows a block has, and from its sums to outputs.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/linear_prefill.h"
#include "kernels/cuda/silu.h"

namespace deltad::cuda {

// A tile of rows of one variant.
struct PrefillRows {
  int32_t first, count;  // count 0: there is no such tile
  int32_t packed;        // the first among the packed rows
  int32_t slot;

  // The index-th when each group is cut into tiles of kTileRows, a multiple of eight.
  template <int kTileRows>
  DELTAD_DEVICE static PrefillRows find(const RowGroups* groups, int32_t index) {
    const int32_t count = load_global(&groups->count);
    int32_t packed = 0;
    for (int32_t g = 0; g < count; ++g) {
      const int32_t first = load_global(&groups->group[g].first_row);
      const int32_t rows = load_global(&groups->group[g].end_row) - first;
      const int32_t before = index * kTileRows;
      if (before < rows) {
        return {first + before, rows - before < kTileRows ? rows - before : kTileRows,
                packed + before, load_global(&groups->group[g].slot)};
      }
      index -= (rows + kTileRows - 1) / kTileRows;
      packed += rows_padded_to_8(rows);
    }
    return {0, 0, 0, -1};
  }
};

// Whether a variant's signs are multiplied by themselves for the weight's outputs 64·part ….
DELTAD_DEVICE bool multiplied_apart(const LinearPrefillParams& p, int32_t slot, int32_t part) {
  return slot >= 0 && in_bounds(part < apart_entries(p.outputs)) &&
         load_global(p.apart + (slot * p.apart_stride + part)) != 0;
}

// The first of the two tiles of 8 outputs, 16 outputs apart, that fill the 16 rows of A number
// `pair` of a block of kOutputs; of its tiles.
DELTAD_DEVICE int32_t prefill_tile(int32_t pair) { return pair / 2 * 4 + pair % 2; }
template <int kOutputs>
DELTAD_DEVICE int32_t prefill_first_tile() {
  return static_cast<int32_t>(blockIdx.y) * (kOutputs / kTileOutputs);
}

// A lane's four sums of a fragment: rows `row` and `row` + 1 of `output`, then of `output` + 16.
// In shared memory they are [rows][prefill_sums_stride]: rows 2t of a fragment fall into banks 8
// apart.
template <int kOutputs>
DELTAD_DEVICE void store_sums(Shared<float> sums, int32_t row, int32_t output, float d0, float d1,
                              float d2, float d3) {
  constexpr int32_t kStride = prefill_sums_stride(kOutputs);
  const Shared<float> at = sums + (row * kStride + output);
  store_shared(at, d0);
  store_shared(at + kStride, d1);
  store_shared(at + 16, d2);
  store_shared(at + (kStride + 16), d3);
}

// From a block's sums to outputs: four a thread, a row after the other.
template <int kOutputs>
class PrefillFinish {
 public:
  DELTAD_DEVICE PrefillFinish(const LinearPrefillParams& params, const PrefillRows& rows,
                              Shared<float> sums)
      : p_(params), rows_(rows), sums_(sums) {
    first_output_ = static_cast<int32_t>(blockIdx.y) * kOutputs;
    w_scale_ = __uint_as_float(static_cast<uint32_t>(127 - p_.w_exponent) << 23);
  }

  DELTAD_DEVICE void run() const {
    const auto thread = static_cast<int32_t>(threadIdx.x);
    const auto threads = static_cast<int32_t>(blockDim.x);
    if (p_.epilogue == LinearPrefillEpilogue::kSiluGate) {
      for (int32_t i = thread; in_bounds(i < rows_.count * (kQuads / 2)); i += threads) {
        store_gated(i / (kQuads / 2), i % (kQuads / 2));
      }
    } else {
      for (int32_t i = thread; in_bounds(i < rows_.count * kQuads); i += threads) {
        store_floats(i / kQuads, i % kQuads);
      }
    }
  }

 private:
  static constexpr int32_t kQuads = kOutputs / 4;

  // Outputs 4·quad … of the block.
  DELTAD_DEVICE float4 values(int32_t row, int32_t quad) const {
    const float scale = load_global(p_.x_scale + rows_.first + row);
    const float4 d =
        load_shared(shared_cast<float4>(sums_ + (row * prefill_sums_stride(kOutputs) + 4 * quad)));
    return make_float4(
        __fmul_rn(__fmul_rn(d.x, scale), w_scale_), __fmul_rn(__fmul_rn(d.y, scale), w_scale_),
        __fmul_rn(__fmul_rn(d.z, scale), w_scale_), __fmul_rn(__fmul_rn(d.w, scale), w_scale_));
  }

  DELTAD_DEVICE void store_floats(int32_t row, int32_t quad) const {
    const int32_t output = first_output_ + 4 * quad;
    if (!in_bounds(output < p_.outputs)) return;
    auto* at = reinterpret_cast<float4*>(static_cast<float*>(p_.out) +
                                         (rows_.first + row) * p_.out_stride + output);
    float4 y = values(row, quad);
    if (p_.epilogue == LinearPrefillEpilogue::kAddResidual) {
      const float4 before = load_global(at);
      y = make_float4(__fadd_rn(before.x, y.x), __fadd_rn(before.y, y.y), __fadd_rn(before.z, y.z),
                      __fadd_rn(before.w, y.w));
    }
    store_global(at, y);
  }

  DELTAD_DEVICE static float gated(float gate, float up) { return __fmul_rn(silu(gate), up); }

  // Four of the block's results; gates and ups are 16 outputs apart.
  DELTAD_DEVICE void store_gated(int32_t row, int32_t quad) const {
    const int32_t gate = quad / 4 * 8 + quad % 4;
    if (!in_bounds(first_output_ + 4 * gate < p_.outputs)) return;
    const float4 y = values(row, gate), z = values(row, gate + 4);
    auto* at = static_cast<uint16_t*>(p_.out) + (rows_.first + row) * p_.out_stride +
               first_output_ / 2 + 4 * quad;
    store_global(reinterpret_cast<uint2*>(at),
                 make_uint2(pack_bf16x2(gated(y.x, z.x), gated(y.y, z.y)),
                            pack_bf16x2(gated(y.z, z.z), gated(y.w, z.w))));
  }

  const LinearPrefillParams& p_;
  const PrefillRows& rows_;
  Shared<float> sums_;
  int32_t first_output_;
  float w_scale_;
};

}  // namespace deltad::cuda
