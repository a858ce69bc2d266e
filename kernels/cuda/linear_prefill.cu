#include "kernels/cuda/device.h"
#include "kernels/cuda/linear_prefill.h"
#include "kernels/cuda/linear_prefill_tile.h"
#include "kernels/cuda/linear_prefill_weights.h"

namespace deltad::cuda {
namespace {

constexpr int32_t kOutputs = 128;  // of a block
constexpr int32_t kThreads = 128;  // four warps, each of 32 outputs
constexpr int32_t kTiles = 4;      // of 8 outputs, a warp's

// Multiplies a tile of up to 16 · kRowTiles rows; leaves the sums in shared memory.
template <bool kApart, int kRowTiles, int kLevels>
DELTAD_DEVICE void multiply(const LinearPrefillParams& p, const PrefillRows& rows,
                            const PrefillWeights<kTiles, kLevels>& weights,
                            StepOfTile<kLevels> (&step)[kTiles]) {
  constexpr int32_t kStage = 16 * kRowTiles * kPrefillUnits;  // 16-byte units
  const auto thread = static_cast<int32_t>(threadIdx.x), lane = thread % 32;
  const Shared<uint4> stages = dynamic_shared<uint4>();
  const uint4* x = static_cast<const uint4*>(p.x) + rows.packed * kPrefillUnits + thread;
  const int64_t x_block = static_cast<int64_t>(p.packed_rows) * kPrefillUnits;
  const int32_t blocks = prefill_blocks(p.columns);
  const auto copy = [&](int32_t i) {
    if (in_bounds(i < blocks)) {
      DELTAD_UNROLL
      for (int32_t u = 0; u < kStage; u += kThreads) {
        cp_async_16(stages + (i % kLinearPrefillStages * kStage + u + thread), x + i * x_block + u);
      }
    }
    cp_async_commit();
  };

  for (int32_t i = 0; i < kLinearPrefillStages - 1; ++i) copy(i);
  float d[kTiles / 2][2 * kRowTiles][4] = {};
  DELTAD_ROLLED
  for (int32_t i = 0; i < blocks; ++i) {
    cp_async_wait<kLinearPrefillStages - 2>();
    __syncthreads();
    copy(i + kLinearPrefillStages - 1);
    // Lane l: row l % 8 of a matrix; matrices l / 8 are two units of eight rows, then of the next.
    const Shared<uint4> b = stages + (i % kLinearPrefillStages * kStage +
                                      lane / 16 * kPrefillUnits * 8 + lane / 8 % 2 * 8 + lane % 8);
    // Two steps of 32 columns; or of each, W and then α·S.
    DELTAD_UNROLL
    for (int32_t turn = 0; turn < (kApart ? 4 : 2); ++turn) {
      const int32_t s = kApart ? turn / 2 : turn;
      uint32_t a[kTiles / 2][2][4];
      DELTAD_UNROLL
      for (int32_t m = 0; m < kTiles / 2; ++m) {
        if (!kApart) {
          weights.template build<PrefillPart::kSum>(step, m, m + 2, a[m]);
        } else if (turn % 2 == 0) {
          weights.template build<PrefillPart::kBase>(step, m, m + 2, a[m]);
        } else {
          weights.template build<PrefillPart::kDelta>(step, m, m + 2, a[m]);
        }
      }
      if (!kApart || turn % 2 == 1) {
        weights.load_base(i + s, 1 - s, step);
        weights.load_signs(i + s, 1 - s, step);
      }
      DELTAD_UNROLL
      for (int32_t k = 0; k < 2; ++k) {
        DELTAD_UNROLL
        for (int32_t j = 0; j < kRowTiles; ++j) {
          uint32_t x_pairs[4];
          ldmatrix_x4(x_pairs, b + (2 * j * kPrefillUnits * 8 + (2 * s + k) * 16));
          const uint32_t first[2] = {x_pairs[0], x_pairs[1]}, second[2] = {x_pairs[2], x_pairs[3]};
          DELTAD_UNROLL
          for (int32_t m = 0; m < kTiles / 2; ++m) {
            mma_m16n8k16_f16(d[m][2 * j], a[m][k], first);
            mma_m16n8k16_f16(d[m][2 * j + 1], a[m][k], second);
          }
        }
      }
    }
  }
  let_next_kernel_start();

  const Shared<float> sums = shared_cast<float>(stages);
  __syncthreads();
  DELTAD_UNROLL
  for (int32_t m = 0; m < kTiles / 2; ++m) {
    DELTAD_UNROLL
    for (int32_t j = 0; j < 2 * kRowTiles; ++j) {
      store_sums<kOutputs>(sums, 8 * j + 2 * (lane % 4),
                           thread / 32 * 32 + kTileOutputs * m + lane / 4, d[m][j][0], d[m][j][1],
                           d[m][j][2], d[m][j][3]);
    }
  }
  __syncthreads();
}

template <int kRows, int kLevels>
DELTAD_DEVICE void linear_prefill(const LinearPrefillParams& p) {
  const auto warp = static_cast<int32_t>(threadIdx.x) / 32;
  const int32_t tile = prefill_first_tile<kOutputs>() + kTiles * warp;
  PrefillWeights<kTiles, kLevels> weights(p, {tile, tile + 1, tile + 2, tile + 3});
  StepOfTile<kLevels> step[kTiles] = {};
  weights.load_base(0, 0, step);
  wait_for_previous_kernel();
  const auto rows = PrefillRows::find<kRows>(p.groups, static_cast<int32_t>(blockIdx.x));
  if (rows.count == 0) return;
  weights.set_variant(p, rows.slot);
  weights.load_signs(0, 0, step);
  // The warps share a loop: what half of the outputs needs is done for all.
  const auto part = static_cast<int32_t>(blockIdx.y) * (kOutputs / kApartOutputs);
  if (kLevels > 0 &&
      (multiplied_apart(p, rows.slot, part) || multiplied_apart(p, rows.slot, part + 1))) {
    multiply<kLevels != 0, kRows / 16, kLevels>(p, rows, weights, step);
  } else if (rows.count <= 32) {
    multiply<false, 2, kLevels>(p, rows, weights, step);
  } else {
    multiply<false, kRows / 16, kLevels>(p, rows, weights, step);
  }
  PrefillFinish<kOutputs>(p, rows, dynamic_shared<float>()).run();
}

}  // namespace

// Registers leave room for two blocks on a multiprocessor, as shared memory does.
extern "C" {

__global__ void __launch_bounds__(kThreads, 2) deltad_linear_prefill(LinearPrefillParams p) {
  linear_prefill<128, 0>(p);
}
__global__ void __launch_bounds__(kThreads, 2) deltad_linear_prefill_signs1(LinearPrefillParams p) {
  linear_prefill<96, 1>(p);
}
__global__ void __launch_bounds__(kThreads, 2) deltad_linear_prefill_signs2(LinearPrefillParams p) {
  linear_prefill<96, 2>(p);
}
__global__ void __launch_bounds__(kThreads, 2) deltad_linear_prefill_signs4(LinearPrefillParams p) {
  linear_prefill<64, 4>(p);
}

}  // extern "C"

}  // namespace deltad::cuda
