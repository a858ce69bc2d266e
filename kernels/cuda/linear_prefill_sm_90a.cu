#include "kernels/cuda/device.h"
#include "kernels/cuda/linear_prefill.h"
#include "kernels/cuda/linear_prefill_tile.h"
#include "kernels/cuda/linear_prefill_weights.h"

namespace deltad::cuda {
namespace {

constexpr int32_t kHalf = 128;                 // rows: the n of one wgmma
constexpr int32_t kGroup = 8 * kPrefillUnits;  // 16-byte units from 8 rows to the next

// Stages of activations: bulk copies in, wgmma out. Thread 0 copies, two blocks of columns after a
// stage was used, so that the warpgroups may be a block of columns apart. The blocks of a cluster
// have the same rows: each copies its part of a stage to all of them, so it may go into a stage
// only when all of them are done with it.
template <int kOutputs, int kStageRows>
struct PrefillStages {
  static constexpr int32_t kStage = kStageRows * kPrefillUnits;  // units
  Shared<uint4> data;
  Shared<uint64_t> full, empty;
  const uint4* x;  // what thread 0 copies next
  int64_t block;   // units between two blocks of columns
  int32_t blocks;

  DELTAD_DEVICE explicit PrefillStages(const LinearPrefillParams& p) {
    data = dynamic_shared<uint4>();
    full = shared_cast<uint64_t>(data + linear_prefill_barriers_at(kOutputs, kStageRows) / 16);
    empty = full + kLinearPrefillStages;
    x = static_cast<const uint4*>(p.x);
    block = static_cast<int64_t>(p.packed_rows) * kPrefillUnits;
    blocks = prefill_blocks(p.columns);
  }
  DELTAD_DEVICE void init() const {
    if (threadIdx.x == 0) {
      for (int32_t s = 0; s < kLinearPrefillStages; ++s) {
        mbarrier_init(full + s, 1);
        mbarrier_init(empty + s, kOutputs / 16 * cluster_blocks());  // warps
      }
      mbarrier_init_fence();
    }
    cluster_arrive();
  }
  // Waits for the others' init.
  DELTAD_DEVICE void set_rows(int32_t packed) {
    x += packed * kPrefillUnits + first_unit();
    cluster_wait();
  }
  // A block's part of a stage.
  DELTAD_DEVICE static uint32_t units() { return kStage >> __popc(cluster_blocks() - 1); }
  DELTAD_DEVICE static int32_t first_unit() {
    return static_cast<int32_t>(cluster_rank() * units());
  }
  // Block of columns i; called for one after the other.
  DELTAD_DEVICE void copy(int32_t i) {
    if (threadIdx.x != 0) return;
    if (!in_bounds(i < blocks)) return;
    const int32_t stage = i % kLinearPrefillStages;
    if (i >= kLinearPrefillStages) {
      mbarrier_wait(empty + stage, static_cast<uint32_t>(i / kLinearPrefillStages - 1) & 1);
    }
    mbarrier_arrive_expect(full + stage, kStage * 16);
    const Shared<uint4> to = data + (stage * kStage + first_unit());
    if (const uint32_t blocks_here = cluster_blocks(); blocks_here == 1) {
      cp_async_bulk(to, x, kStage * 16, full + stage);
    } else {
      bulk_copy_multicast(to, x, units() * 16, full + stage,
                          static_cast<uint16_t>((1u << blocks_here) - 1));
    }
    x += block;
  }
  DELTAD_DEVICE void wait(int32_t i) const {
    mbarrier_wait(full + i % kLinearPrefillStages,
                  static_cast<uint32_t>(i / kLinearPrefillStages) & 1);
  }
  // A warp is done with a stage that will be used again, all of its lanes having waited for what
  // they multiplied; a lane tells a block. Nobody tells a block what it does not wait for: it may
  // have ended.
  DELTAD_DEVICE void release(int32_t i) const {
    if (!in_bounds(i + kLinearPrefillStages < blocks)) return;
    __syncwarp();
    const uint32_t lane = threadIdx.x % 32;
    if (lane < cluster_blocks()) mbarrier_arrive_at(empty + i % kLinearPrefillStages, lane);
  }
};

// d: sums of the tile's halves of 128 rows. step: the first block's, already asked for.
template <bool kApart, int kOutputs, int kRows, int kLevels>
DELTAD_DEVICE void multiply(PrefillStages<kOutputs, kRows>& stages,
                            const PrefillWeights<2, kLevels>& weights,
                            StepOfTile<kLevels> (&step)[2][2],
                            float (&d)[kRows / kHalf][kHalf / 2]) {
  uint32_t a[2][2][4];  // one is multiplied while the other is made
  DELTAD_ROLLED
  for (int32_t i = 0; i < stages.blocks; ++i) {
    stages.copy(i + kLinearPrefillStages - 2);
    const uint64_t b = wgmma_descriptor(stages.data + i % kLinearPrefillStages * stages.kStage, 128,
                                        kGroup * 16, WgmmaSwizzle::kNone);
    // Two steps of 32 columns; or of each, W and then α·S.
    DELTAD_UNROLL
    for (int32_t turn = 0; turn < (kApart ? 4 : 2); ++turn) {
      const int32_t s = kApart ? turn / 2 : turn;
      if (!kApart) {
        weights.template build<PrefillPart::kSum>(step[s], 0, 1, a[turn % 2]);
      } else if (turn % 2 == 0) {
        weights.template build<PrefillPart::kBase>(step[s], 0, 1, a[0]);
      } else {
        weights.template build<PrefillPart::kDelta>(step[s], 0, 1, a[1]);
      }
      if (!kApart || turn % 2 == 1) {
        weights.load_base(i + 1, s, step[s]);
        weights.load_signs(i + 1, s, step[s]);
      }
      if (turn == 0) stages.wait(i);
      wgmma_fence();
      DELTAD_UNROLL
      for (int32_t k = 0; k < 2; ++k) {
        DELTAD_UNROLL
        for (int32_t h = 0; h < kRows / kHalf; ++h) {
          // The descriptor counts in 16 bytes: 16 columns are two units of 8.
          wgmma_m64n128k16_f16(
              d[h], a[turn % 2][k],
              b + static_cast<uint64_t>((2 * s + k) * 16 + h * (kHalf / 8 * kGroup)));
        }
      }
      wgmma_commit();
      wgmma_wait<1>();
      if (turn == 0 && i > 0) stages.release(i - 1);
    }
  }
  wgmma_wait<0>();
}

template <int kOutputs, int kRows, int kLevels>
DELTAD_DEVICE void linear_prefill(const LinearPrefillParams& p) {
  constexpr int kHalves = kRows / kHalf;
  const auto thread = static_cast<int32_t>(threadIdx.x), lane = thread % 32;
  const int32_t own_tile = prefill_tile(thread / 32);
  PrefillStages<kOutputs, kRows> stages(p);
  const int32_t tile = prefill_first_tile<kOutputs>() + own_tile;
  PrefillWeights<2, kLevels> weights(p, {tile, tile + 2});
  StepOfTile<kLevels> step[2][2] = {};
  weights.load_base(0, 0, step[0]);
  weights.load_base(0, 1, step[1]);
  stages.init();
  wait_for_previous_kernel();
  const auto rows = PrefillRows::find<kRows>(p.groups, static_cast<int32_t>(blockIdx.x));
  if (rows.count == 0) return;
  stages.set_rows(rows.packed);
  for (int32_t i = 0; i < kLinearPrefillStages - 2; ++i) stages.copy(i);
  // Whether this warpgroup's signs are multiplied apart, and whether some of the block's are: it
  // decides for itself, as no row's arithmetic may depend on how many make up a block; but where
  // all do the same, the compiler shall know it.
  constexpr int32_t kParts = kOutputs / kApartOutputs;
  const int32_t part = static_cast<int32_t>(blockIdx.y) * kParts;
  bool some_apart = false;
  DELTAD_UNROLL
  for (int32_t i = 0; kLevels > 0 && i < kParts; ++i) {
    some_apart = some_apart || multiplied_apart(p, rows.slot, part + i);
  }
  const bool apart = some_apart && multiplied_apart(p, rows.slot, part + thread / 128);
  weights.set_variant(p, rows.slot);
  weights.load_signs(0, 0, step[0]);
  weights.load_signs(0, 1, step[1]);

  float d[kHalves][kHalf / 2] = {};
  if (!some_apart) {
    multiply<false>(stages, weights, step, d);
  } else if (apart) {
    multiply<kLevels != 0>(stages, weights, step, d);
  } else {
    multiply<false>(stages, weights, step, d);
  }
  let_next_kernel_start();

  const Shared<float> sums = shared_cast<float>(stages.data);
  __syncthreads();
  DELTAD_UNROLL
  for (int32_t h = 0; h < kHalves; ++h) {
    DELTAD_UNROLL
    for (int32_t j = 0; j < kHalf / 8; ++j) {
      store_sums<kOutputs>(sums, h * kHalf + 8 * j + 2 * (lane % 4),
                           kTileOutputs * own_tile + lane / 4, d[h][4 * j], d[h][4 * j + 1],
                           d[h][4 * j + 2], d[h][4 * j + 3]);
    }
  }
  __syncthreads();
  PrefillFinish<kOutputs>(p, rows, sums).run();
}

}  // namespace

extern "C" {

__global__ void __launch_bounds__(256, 2) deltad_linear_prefill_r128(LinearPrefillParams p) {
  linear_prefill<128, 128, 0>(p);
}
__global__ void __launch_bounds__(256, 2) deltad_linear_prefill_r128_signs1(LinearPrefillParams p) {
  linear_prefill<128, 128, 1>(p);
}
__global__ void __launch_bounds__(256, 1) deltad_linear_prefill_r128_signs2(LinearPrefillParams p) {
  linear_prefill<128, 128, 2>(p);
}
__global__ void __launch_bounds__(256, 1) deltad_linear_prefill_r128_signs4(LinearPrefillParams p) {
  linear_prefill<128, 128, 4>(p);
}
__global__ void __launch_bounds__(384, 1) deltad_linear_prefill_o192(LinearPrefillParams p) {
  linear_prefill<192, 128, 0>(p);
}
__global__ void __launch_bounds__(384, 1) deltad_linear_prefill_o192_signs1(LinearPrefillParams p) {
  linear_prefill<192, 128, 1>(p);
}
__global__ void __launch_bounds__(256, 1) deltad_linear_prefill_r256(LinearPrefillParams p) {
  linear_prefill<128, 256, 0>(p);
}
__global__ void __launch_bounds__(256, 1) deltad_linear_prefill_r256_signs1(LinearPrefillParams p) {
  linear_prefill<128, 256, 1>(p);
}
__global__ void __launch_bounds__(256, 1) deltad_linear_prefill_r256_signs2(LinearPrefillParams p) {
  linear_prefill<128, 256, 2>(p);
}
__global__ void __launch_bounds__(256, 1) deltad_linear_prefill_r256_signs4(LinearPrefillParams p) {
  linear_prefill<128, 256, 4>(p);
}

}  // extern "C"

}  // namespace deltad::cuda
