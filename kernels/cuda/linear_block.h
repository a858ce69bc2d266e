// Device code of the decode kernel: what a block works on, and its activations' way into shared
// memory.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/linear_decode.h"
#include "kernels/cuda/row_slot.h"

namespace deltad::cuda {

constexpr uint32_t kAllLanes = 0xffffffffu;

// What a block's rows need, bit r being row r: those that have more than l levels of signs, those
// at which a group with signs begins. And how many levels the groups have together.
template <int kLevels>
struct RowBits {
  uint32_t with[kLevels > 0 ? kLevels : 1];
  uint32_t first;
  int32_t items;

  DELTAD_DEVICE bool has(int row, int level) const { return (with[level] >> row & 1) != 0; }
  DELTAD_DEVICE bool begins(int row) const { return (first >> row & 1) != 0; }
};

template <int kRows, int kLevels>
struct Block {
  // Shared memory.
  static constexpr int32_t kStageRow = 2 * kChunk / 16;  // 16-byte units of a row in a stage
  static constexpr int32_t kStage = kRows * kStageRow;
  Shared<uint4> ring;           // [kLinearRing][threads]
  Shared<uint4> x;              // [kLinearStages][kRows][32], swizzled
  Shared<uint4> planes;         // [kLinearStages][kRows][32]
  Shared<uint64_t> item_signs;  // [kRows · levels] sign tiles of each group's levels, in order
  Shared<int32_t> slot;         // [kRows]
  Shared<uint32_t> words;       // RowBits; later: how many blocks have come

  int32_t row0, rows;  // the block's
  int32_t chunk0, chunk1;
  int32_t chunks;  // of the weight
  int32_t tile;    // the warp's
  bool active;     // the warp's tile is there
  int32_t thread, lane;

  DELTAD_DEVICE explicit Block(const LinearParams& p);
  DELTAD_DEVICE RowBits<kLevels> look_at_rows(const LinearParams& p);
  DELTAD_DEVICE void copy_activations(const LinearParams& p, const RowBits<kLevels>& bits,
                                      int32_t chunk);
};

template <int kRows, int kLevels>
DELTAD_DEVICE Block<kRows, kLevels>::Block(const LinearParams& p) {
  ring = dynamic_shared<uint4>();
  x = ring + kLinearRing * static_cast<int32_t>(kLinearThreads);
  planes = x + kLinearStages * kStage;
  item_signs = shared_cast<uint64_t>(planes + (kLevels > 0 ? kLinearStages * kStage : 0));
  slot = shared_cast<int32_t>(item_signs + kRows * kLevels);
  words = shared_cast<uint32_t>(slot + kRows);
  thread = static_cast<int32_t>(threadIdx.x);
  lane = thread % 32;
  row0 = static_cast<int32_t>(blockIdx.x) * kRows;
  rows = p.rows - row0 < kRows ? p.rows - row0 : kRows;
  chunks = chunks_of(p.columns);
  const auto split = static_cast<int32_t>(blockIdx.z);
  chunk0 = split * chunks / p.splits;
  chunk1 = (split + 1) * chunks / p.splits;
  tile = static_cast<int32_t>(blockIdx.y) * kLinearWarps + thread / 32;
  active = in_bounds(tile < p.outputs / kTileOutputs);
}

// Lane r of the first warp looks up row r; all threads read the result.
template <int kRows, int kLevels>
DELTAD_DEVICE RowBits<kLevels> Block<kRows, kLevels>::look_at_rows(const LinearParams& p) {
  if (thread < 32) {
    // A row beyond the batch is in no group.
    const int32_t own_slot = in_bounds(lane < kRows) ? slot_of_row(p.groups, row0 + lane) : -1;
    int32_t levels = 0;
    uint64_t signs[kLevels > 0 ? kLevels : 1] = {};
    if (own_slot >= 0) {
      DELTAD_UNROLL
      for (int32_t l = 0; l < kLevels; ++l) {
        signs[l] = reinterpret_cast<uint64_t>(load_global(&p.slots[own_slot].signs[l]));
        levels += signs[l] != 0;
      }
    }
    const int32_t before = __shfl_up_sync(kAllLanes, own_slot, 1);
    const bool first = levels > 0 && (lane == 0 || before != own_slot);
    // Items before this row's: a running sum over lanes.
    int32_t end = first ? levels : 0;
    for (int by = 1; by < 32; by *= 2) {
      const int32_t other = __shfl_up_sync(kAllLanes, end, static_cast<unsigned>(by));
      if (lane >= by) end += other;
    }
    if (lane < kRows) store_shared(slot + lane, own_slot);
    DELTAD_UNROLL
    for (int32_t l = 0; l < kLevels; ++l) {
      if (first && l < levels) store_shared(item_signs + (end - levels + l), signs[l]);
      const uint32_t with = __ballot_sync(kAllLanes, levels > l);
      if (lane == 0) store_shared(words + l, with);
    }
    const uint32_t begin = __ballot_sync(kAllLanes, first);
    if (lane == 31) {
      store_shared(words + kLevels, begin);
      store_shared(words + kLevels + 1, static_cast<uint32_t>(end));
    }
  }
  __syncthreads();
  RowBits<kLevels> bits;
  DELTAD_UNROLL
  for (int32_t l = 0; l < kLevels; ++l) bits.with[l] = load_shared(words + l);
  bits.first = load_shared(words + kLevels);
  bits.items = static_cast<int32_t>(load_shared(words + kLevels + 1));
  return bits;
}

// All threads copy a chunk of x, and of the planes of rows with signs. 16-byte unit u of row r of x
// lies at u ^ (r % 8), so that the eight rows of a matrix that ldmatrix reads are in eight banks'
// groups.
template <int kRows, int kLevels>
DELTAD_DEVICE void Block<kRows, kLevels>::copy_activations(const LinearParams& p,
                                                           const RowBits<kLevels>& bits,
                                                           int32_t chunk) {
  const int32_t stage = chunk % kLinearStages * kStage;
  const auto* in = static_cast<const uint4*>(p.planes);
  DELTAD_UNROLL
  for (int32_t i = 0; i < kRows / kLinearWarps; ++i) {
    const int32_t row = i * kLinearWarps + thread / 32;
    const int32_t column = chunk * kChunk + 8 * lane;
    bool there = in_bounds(row < rows);
    if (!in_bounds(column < p.columns)) there = false;
    cp_async_16_or_zero(x + (stage + row * kStageRow + (lane ^ row % 8)),
                        there ? p.x + (row0 + row) * p.x_stride + column : p.x, there);
    if (kLevels > 0 && bits.has(row, 0)) {
      cp_async_16(planes + (stage + row * kStageRow + lane),
                  in + (static_cast<int64_t>(row0 + row) * chunks + chunk) * 32 + lane);
    }
  }
}

}  // namespace deltad::cuda
