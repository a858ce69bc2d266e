#include "kernels/cuda/device.h"
#include "kernels/cuda/linear_block.h"
#include "kernels/cuda/linear_decode.h"
#include "kernels/cuda/linear_finish.h"
#include "kernels/cuda/linear_stream.h"

namespace deltad::cuda {
namespace {

// Sums of rows' bit planes with signs. A lane has planes g and g + 8 of two outputs for each row
// and level: four sums in the tensor core's own accumulators, or where registers are short two,
// into which the planes are folded by their weights chunk by chunk.
template <int kRows, int kLevels>
class SignSums {
 public:
  DELTAD_DEVICE explicit SignSums(int32_t group)
      : low_weight_(1 << group), high_weight_(group == 7 ? -32768 : 256 << group) {}

  DELTAD_DEVICE void add(int row, int level, const uint4& planes, uint2 signs) {
    const uint32_t a[4] = {planes.x, planes.y, planes.z, planes.w}, b[2] = {signs.x, signs.y};
    int32_t(&sum)[kKept] = sums_[row][level];
    if constexpr (kFolds) {
      int32_t d[4] = {};
      mma_m16n8k256_and(d, a, b);
      sum[0] += d[0] * low_weight_ + d[2] * high_weight_;
      sum[1] += d[1] * low_weight_ + d[3] * high_weight_;
    } else {
      mma_m16n8k256_and(sum, a, b);
    }
  }
  // This lane's part of the sum of output 2t + i; the other lanes of the column have 14 planes.
  DELTAD_DEVICE int32_t of(int row, int level, int i) const {
    const int32_t(&sum)[kKept] = sums_[row][level];
    if constexpr (kFolds) return sum[i];
    return sum[i] * low_weight_ + sum[kKept - 2 + i] * high_weight_;
  }

 private:
  static constexpr bool kFolds = kRows * kLevels > 32;
  static constexpr int kKept = kFolds ? 2 : 4;

  const int32_t low_weight_, high_weight_;  // two's complement: that of plane 15 is negative
  int32_t sums_[kRows][kLevels][kKept] = {};
};

// kRows: of a block, 16 or 32. kLevels: the most levels of signs that a row may have.
template <int kRows, int kLevels>
DELTAD_DEVICE void linear_decode(const LinearParams& p) {
  constexpr int kTiles = kRows / 16;                  // of rows
  constexpr int kSignRows = kLevels > 0 ? kRows : 1;  // rows that have sign sums
  constexpr int kSignLevels = kLevels > 0 ? kLevels : 1;
  using Of = Block<kRows, kLevels>;
  Of block(p);
  if (block.rows == 0) return;
  const int32_t lane = block.lane, group = lane / 4, pair = lane % 4;
  BaseStream<kRows, kLevels> stream(block);

  // The first half of the pieces that set out at once does so before the rows are looked at, or the
  // kernel before has ended, unless those decide what is read; then come the first chunk's
  // activations, which are waited for.
  constexpr int kHalf = Of::kRing / 2 - 1;
  if (p.dense == nullptr) {
    for (int i = 0; i < kHalf; ++i) stream.start(i, true);
    stream.prefetch(block, kHalf);
  }
  wait_for_previous_kernel();
  RowBits<kLevels> bits{};
  if (kLevels > 0 || p.dense != nullptr) bits = block.look_at_rows(p);
  if (p.dense != nullptr) {
    if (!bits.any) return;
    for (int i = 0; i < kHalf; ++i) stream.start(i, true);
  }
  Activations<kRows, kLevels> activations(p, block, bits);
  SignStream<kRows, kLevels> sign_stream(block, bits.items);
  activations.copy(0);
  for (int i = kHalf; i < Of::kRing - 1; ++i) {
    stream.start(i, i < kChunkSteps || in_bounds(block.chunk0 + 1 < block.chunk1));
  }
  constexpr int kSignPieces = kLevels > 0 ? kLinearSignRing - 1 : 0;
  for (int i = 0; i < kSignPieces; ++i) sign_stream.copy();
  cp_async_wait<kHalf + kSignPieces>();

  float base[kTiles][4] = {};
  SignSums<kSignRows, kSignLevels> signs(group);
  // ldmatrix: lane l gives row l % 16, columns 8 (l / 16) … of 16 columns. Where those lie in two
  // steps: a multiple of 8 units more does not meet the swizzle, nor do 16 rows.
  int32_t unit[4];
  DELTAD_UNROLL
  for (int i = 0; i < 4; ++i) {
    unit[i] = lane % 16 * Of::kStageRow + ((2 * i + lane / 16) ^ lane % 8);
  }
  int32_t turn = 0;
  for (int32_t chunk = block.chunk0; chunk < block.chunk1; ++chunk, ++turn) {
    // This chunk's activations have come for those who copied them.
    __syncthreads();
    if (in_bounds(chunk + 1 < block.chunk1)) activations.copy((turn + 1) % kLinearStages);
    if (!block.active) {
      cp_async_commit();
      cp_async_wait<0>();
      continue;
    }
    const int32_t stage = turn % kLinearStages * Of::kStage;
    const Shared<uint4> x = block.x + stage;
    const bool refills = in_bounds(chunk + stream.kDepth < block.chunk1);
    DELTAD_UNROLL_BY(stream.kUnrolledSteps)
    for (int step = 0; step < kChunkSteps; ++step) {
      // The first step refills a slot of the chunk before.
      const bool there =
          step > 0 ? refills : stream.kDepth == 1 || in_bounds(chunk + 1 < block.chunk1);
      const uint4 w = stream.next(turn, step, there);
      const uint32_t first[2] = {w.x, w.y}, second[2] = {w.z, w.w};
      DELTAD_UNROLL
      for (int t = 0; t < kTiles; ++t) {
        const int32_t at = 16 * t * Of::kStageRow + step / 2 * 8;
        uint32_t a[4];
        ldmatrix_x4(a, x + unit[step % 2 * 2] + at);
        mma_m16n8k16_bf16(base[t], a, first);
        ldmatrix_x4(a, x + unit[step % 2 * 2 + 1] + at);
        mma_m16n8k16_bf16(base[t], a, second);
      }
    }
    stream.end_chunk();
    if constexpr (kLevels > 0) {
      const Shared<uint4> planes = block.planes + (stage + lane);
      uint2 s[kSignLevels] = {};
      DELTAD_UNROLL
      for (int row = 0; row < kRows; ++row) {
        if (!bits.has(row, 0)) continue;
        if (bits.begins(row)) {
          DELTAD_UNROLL
          for (int l = 0; l < kLevels; ++l) {
            if (l == 0 || bits.has(row, l)) s[l] = sign_stream.next(row * kLevels + l);
          }
        }
        const uint4 q = load_shared(planes + row * Of::kStageRow);
        DELTAD_UNROLL
        for (int l = 0; l < kLevels; ++l) {
          if (l == 0 || bits.has(row, l)) signs.add(row, l, q, s[l]);
        }
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
        int32_t sum[2] = {signs.of(row, l, 0), signs.of(row, l, 1)};
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
  const bool rotates = p.epilogue == LinearEpilogue::kRotary;
  const int32_t together = rotates ? linear_whole_heads(p.rope.head_dim) : 1;
  Finish<kRows, kLevels>{p, block, base_sums, sign_sums, together}.run();
}

}  // namespace

// The second number: blocks on a multiprocessor that registers must leave room for.
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
