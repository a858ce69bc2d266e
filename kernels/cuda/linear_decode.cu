#include "kernels/cuda/device.h"
#include "kernels/cuda/linear_block.h"
#include "kernels/cuda/linear_decode.h"
#include "kernels/cuda/linear_finish.h"
#include "kernels/cuda/linear_stream.h"

namespace deltad::cuda {
namespace {

// kRows: of a block, 16 or 32. kLevels: the most levels of signs that a row may have.
template <int kRows, int kLevels>
DELTAD_DEVICE void linear_decode(const LinearParams& p) {
  constexpr int kTiles = kRows / 16;                  // of rows
  constexpr int kSignRows = kLevels > 0 ? kRows : 1;  // rows that have sign sums
  constexpr int kSignLevels = kLevels > 0 ? kLevels : 1;
  Block<kRows, kLevels> block(p);
  const int32_t lane = block.lane, group = lane / 4, pair = lane % 4;
  Stream<kRows, kLevels> stream(p, block);

  // The first pieces are of the base: they set out before the rows are looked at, or the kernel
  // before has ended.
  for (int i = 0; i < kChunkSteps - 1; ++i) stream.copy();
  wait_for_previous_kernel();
  RowBits<kLevels> bits{};
  if (kLevels > 0) {
    bits = block.look_at_rows(p);
    stream.set_items(bits.items);
  }
  block.copy_activations(p, bits, block.chunk0);
  if (in_bounds(block.chunk0 + 1 < block.chunk1)) block.copy_activations(p, bits, block.chunk0 + 1);
  for (int i = kChunkSteps - 1; i < kLinearRing - 1; ++i) stream.copy();
  cp_async_wait<kLinearRing - 1 - kChunkSteps>();

  float base[kTiles][4] = {};
  int32_t signs[kSignRows][kSignLevels][2] = {};
  const int32_t low_weight = 1 << group;
  const int32_t high_weight = group == 7 ? -32768 : 256 << group;  // two's complement
  for (int32_t chunk = block.chunk0; chunk < block.chunk1; ++chunk) {
    // By its last piece of a chunk a thread's copies of the next chunk's activations have come: at
    // least two chunks of pieces were started after them.
    __syncthreads();
    if (in_bounds(chunk + 2 < block.chunk1)) block.copy_activations(p, bits, chunk + 2);
    const Shared<uint4> x = block.x + chunk % kLinearStages * block.kStage;
    const Shared<uint4> planes = block.planes + chunk % kLinearStages * block.kStage;
    if (!block.active) {
      for (int i = 0; i < stream.pieces(); ++i) stream.copy();
      cp_async_wait<kLinearRing - 1>();
      continue;
    }
    DELTAD_UNROLL
    for (int step = 0; step < kChunkSteps; ++step) {
      const uint4 w = stream.next_base();
      const uint32_t first[2] = {w.x, w.y}, second[2] = {w.z, w.w};
      DELTAD_UNROLL
      for (int t = 0; t < kTiles; ++t) {
        // Lane l: row l % 16, columns 8 (l / 16) … of the first 16 columns of the step.
        const int32_t row = 16 * t + lane % 16, unit = 4 * step + lane / 16;
        uint32_t a[4];
        ldmatrix_x4(a, x + (row * block.kStageRow + (unit ^ row % 8)));
        mma_m16n8k16_bf16(base[t], a, first);
        ldmatrix_x4(a, x + (row * block.kStageRow + ((unit + 2) ^ row % 8)));
        mma_m16n8k16_bf16(base[t], a, second);
      }
    }
    if (kLevels == 0) continue;
    uint2 s[kSignLevels] = {};
    DELTAD_UNROLL
    for (int row = 0; row < kSignRows; ++row) {
      if (bits.begins(row)) {
        DELTAD_UNROLL
        for (int l = 0; l < kSignLevels; ++l) {
          if (bits.has(row, l)) s[l] = stream.next_signs();
        }
      }
      if (!bits.has(row, 0)) continue;
      const uint4 q = load_shared(planes + (row * block.kStageRow + lane));
      const uint32_t a[4] = {q.x, q.y, q.z, q.w};
      DELTAD_UNROLL
      for (int l = 0; l < kSignLevels; ++l) {
        if (l > 0 && !bits.has(row, l)) continue;
        const uint32_t b[2] = {s[l].x, s[l].y};
        int32_t d[4] = {};
        mma_m16n8k256_and(d, a, b);
        signs[row][l][0] += d[0] * low_weight + d[2] * high_weight;
        signs[row][l][1] += d[1] * low_weight + d[3] * high_weight;
      }
    }
  }

  let_next_kernel_start();

  // The block's sums, laid out by rows in the ring's memory: base, then each level.
  const Shared<float> base_sums = shared_cast<float>(block.ring);
  const Shared<int32_t> sign_sums = shared_cast<int32_t>(base_sums + kRows * kSumsStride);
  const int32_t column = block.thread / 32 * kTileOutputs + 2 * pair;
  __syncthreads();
  if (block.active) {
    DELTAD_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      for (int h = 0; h < 2; ++h) {
        const int32_t row = 16 * t + group + 8 * h;
        store_shared(shared_cast<float2>(base_sums + (row * kSumsStride + column)),
                     make_float2(base[t][2 * h], base[t][2 * h + 1]));
      }
    }
    DELTAD_UNROLL
    for (int row = 0; row < (kLevels > 0 ? kSignRows : 0); ++row) {
      DELTAD_UNROLL
      for (int l = 0; l < kSignLevels; ++l) {
        int32_t(&sum)[2] = signs[row][l];  // of two planes; the other lanes of the column have 14
        for (int flip = 4; flip < 32; flip *= 2) {
          sum[0] += __shfl_xor_sync(kAllLanes, sum[0], flip);
          sum[1] += __shfl_xor_sync(kAllLanes, sum[1], flip);
        }
        if (group == row % 8) {
          store_shared(shared_cast<int2>(sign_sums + ((l * kRows + row) * kSumsStride + column)),
                       make_int2(sum[0], sum[1]));
        }
      }
    }
  }
  __syncthreads();
  Finish<kRows, kLevels>{p, block, base_sums, sign_sums}.run();
}

}  // namespace

// The second number: blocks on a multiprocessor that registers must leave room for. Shared memory
// holds two of 16 rows on sm_90.
extern "C" {

__global__ void __launch_bounds__(kLinearThreads, 2) deltad_linear_r16(LinearParams p) {
  linear_decode<16, 0>(p);
}
__global__ void __launch_bounds__(kLinearThreads, 2) deltad_linear_r16_signs1(LinearParams p) {
  linear_decode<16, 1>(p);
}
__global__ void __launch_bounds__(kLinearThreads, 1) deltad_linear_r16_signs2(LinearParams p) {
  linear_decode<16, 2>(p);
}
__global__ void __launch_bounds__(kLinearThreads, 1) deltad_linear_r16_signs4(LinearParams p) {
  linear_decode<16, 4>(p);
}
__global__ void __launch_bounds__(kLinearThreads, 1) deltad_linear_r32(LinearParams p) {
  linear_decode<32, 0>(p);
}
__global__ void __launch_bounds__(kLinearThreads, 1) deltad_linear_r32_signs1(LinearParams p) {
  linear_decode<32, 1>(p);
}
__global__ void __launch_bounds__(kLinearThreads, 1) deltad_linear_r32_signs2(LinearParams p) {
  linear_decode<32, 2>(p);
}

}  // extern "C"

}  // namespace deltad::cuda
