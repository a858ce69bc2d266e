// Device code of the decode kernel: what a block works on, and its activations' way into shared
// memory.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/linear_decode.h"
#include "kernels/cuda/row_groups.h"

namespace deltad::cuda {

// Instead of a slot: a row that another block takes, through a weight of its own.
constexpr int32_t kElsewhere = -2;

// What a block's rows need, bit r being row r: those that have more than l levels of signs, those
// at which a group with signs begins. How many levels the groups have together, and whether any of
// the rows is this block's.
template <int kLevels>
struct RowBits {
  uint32_t with[kLevels > 0 ? kLevels : 1];
  uint32_t first;
  int32_t items;
  bool any;

  DELTAD_DEVICE bool has(int row, int level) const { return (with[level] >> row & 1) != 0; }
  DELTAD_DEVICE bool begins(int row) const { return (first >> row & 1) != 0; }
};

template <int kRows, int kLevels>
struct Block {
  // Shared memory.
  static constexpr int32_t kStageRow = 2 * kChunk / 16;  // 16-byte units of a row in a stage
  static constexpr int32_t kStage = kRows * kStageRow;
  static constexpr int32_t kRing = linear_ring(kRows, kLevels);
  Shared<uint4> ring;           // [kRing][threads]
  Shared<uint4> x;              // [kLinearStages][kRows][32], swizzled
  Shared<uint4> planes;         // [kLinearStages][kRows][32]
  Shared<uint2> sign_ring;      // [kLinearSignRing][threads]
  Shared<uint64_t> item_signs;  // [kRows · levels] sign tiles of each group's levels, in order
  Shared<int32_t> slot;         // [kRows], or kElsewhere; known with signs or dense weights
  Shared<uint32_t> words;       // RowBits; later: how many blocks have come

  int32_t row0, rows;  // the block's; no rows: nothing to do
  bool own_weight;     // they go through their variant's weight
  int32_t chunk0, chunk1;
  int32_t chunks;   // of the weight
  const void* w;    // base tiles
  int32_t outputs;  // of w
  int32_t tile;     // the warp's
  bool active;      // the warp's tile is there
  int32_t thread, lane;

  DELTAD_DEVICE explicit Block(const LinearParams& p);
  DELTAD_DEVICE RowBits<kLevels> look_at_rows(const LinearParams& p);

 private:
  DELTAD_DEVICE void find_dense(const LinearParams& p, int32_t dense_tile);
  DELTAD_DEVICE int32_t slot_of_lane(const LinearParams& p) const;
};

// For each group in turn, in all lanes of a warp: f(group). The warp reads 32 groups at once.
template <class F>
DELTAD_DEVICE void for_each_group(const RowGroups* groups, int32_t lane, F f) {
  const int32_t count = load_global(&groups->count);
  for (int32_t from = 0; from < count; from += 32) {
    RowGroup own = {0, 0, -1};
    if (from + lane < count) {
      const RowGroup* at = &groups->group[from + lane];
      own = {load_global(&at->first_row), load_global(&at->end_row), load_global(&at->slot)};
    }
    const int32_t here = count - from < 32 ? count - from : 32;
    DELTAD_ROLLED
    for (int32_t i = 0; i < here; ++i) {
      f(RowGroup{__shfl_sync(kAllLanes, own.first_row, i), __shfl_sync(kAllLanes, own.end_row, i),
                 __shfl_sync(kAllLanes, own.slot, i)});
    }
  }
}

template <int kRows, int kLevels>
DELTAD_DEVICE Block<kRows, kLevels>::Block(const LinearParams& p) {
  constexpr auto kThreads = static_cast<int32_t>(kLinearThreads);
  ring = dynamic_shared<uint4>();
  x = ring + kRing * kThreads;
  planes = x + kLinearStages * kStage;
  sign_ring = shared_cast<uint2>(planes + (kLevels > 0 ? kLinearStages * kStage : 0));
  item_signs = shared_cast<uint64_t>(sign_ring + (kLevels > 0 ? kLinearSignRing * kThreads : 0));
  slot = shared_cast<int32_t>(item_signs + kRows * kLevels);
  words = shared_cast<uint32_t>(slot + kRows);
  thread = static_cast<int32_t>(threadIdx.x);
  lane = thread % 32;
  const auto tile_of_rows = static_cast<int32_t>(blockIdx.x);
  const int32_t base_tiles = row_tiles(p.rows, kRows);
  own_weight = tile_of_rows >= base_tiles;
  row0 = tile_of_rows * kRows;
  rows = p.rows - row0 < kRows ? p.rows - row0 : kRows;
  w = p.w;
  outputs = p.outputs;
  if (own_weight) find_dense(p, tile_of_rows - base_tiles);
  if (static_cast<int32_t>(blockIdx.y) * kLinearOutputs >= outputs) rows = 0;
  chunks = chunks_of(p.columns);
  const auto split = static_cast<int32_t>(blockIdx.z);
  chunk0 = split * chunks / p.splits;
  chunk1 = (split + 1) * chunks / p.splits;
  tile = static_cast<int32_t>(blockIdx.y) * kLinearWarps + thread / 32;
  active = in_bounds(tile < outputs / kTileOutputs);
}

// The rows and the weight of the block's tile among those of groups with a dense weight.
template <int kRows, int kLevels>
DELTAD_DEVICE void Block<kRows, kLevels>::find_dense(const LinearParams& p, int32_t dense_tile) {
  wait_for_previous_kernel();
  rows = 0;
  int32_t before = 0;  // tiles of the groups before
  for_each_group(p.groups, lane, [&](const RowGroup& group) {
    if (group.slot < 0) return;
    const void* own = load_global(&p.dense[group.slot].w);
    if (own == nullptr) return;
    const int32_t tiles = row_tiles(group.end_row - group.first_row, kRows);
    const int32_t in_group = dense_tile - before;
    before += tiles;
    if (in_group < 0 || in_group >= tiles) return;
    row0 = group.first_row + in_group * kRows;
    rows = group.end_row - row0 < kRows ? group.end_row - row0 : kRows;
    w = own;
    outputs = load_global(&p.dense[group.slot].outputs);
  });
}

// Of the row of this number; -1 beyond the block's rows.
template <int kRows, int kLevels>
DELTAD_DEVICE int32_t Block<kRows, kLevels>::slot_of_lane(const LinearParams& p) const {
  const int32_t row = row0 + lane;
  int32_t found = -1;
  for_each_group(p.groups, lane, [&](const RowGroup& group) {
    if (group.first_row <= row && row < group.end_row) found = group.slot;
  });
  if (!in_bounds(lane < rows)) return -1;
  if (p.dense == nullptr || own_weight || found < 0) return found;
  return load_global(&p.dense[found].w) == nullptr ? found : kElsewhere;
}

// Lane r of the first warp looks up row r; all threads read the result.
template <int kRows, int kLevels>
DELTAD_DEVICE RowBits<kLevels> Block<kRows, kLevels>::look_at_rows(const LinearParams& p) {
  if (thread < 32) {
    const int32_t own_slot = slot_of_lane(p);
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
    const uint32_t here = __ballot_sync(kAllLanes, lane < rows && own_slot != kElsewhere);
    if (lane == 31) {
      store_shared(words + kLevels, begin);
      store_shared(words + kLevels + 1, static_cast<uint32_t>(end));
      store_shared(words + kLevels + 2, here);
    }
  }
  __syncthreads();
  RowBits<kLevels> bits;
  DELTAD_UNROLL
  for (int32_t l = 0; l < kLevels; ++l) bits.with[l] = load_shared(words + l);
  bits.first = load_shared(words + kLevels);
  bits.items = static_cast<int32_t>(load_shared(words + kLevels + 1));
  bits.any = load_shared(words + kLevels + 2) != 0;
  return bits;
}

// A thread's part of the activations' way into shared memory: 16 bytes of every eighth row, of x
// and of the planes of rows with signs. Unit u of row r of x lies at u ^ (r % 8), so that the eight
// rows of a matrix that ldmatrix reads are in eight banks' groups.
template <int kRows, int kLevels>
class Activations {
 public:
  DELTAD_DEVICE Activations(const LinearParams& p, const Block<kRows, kLevels>& block,
                            const RowBits<kLevels>& bits)
      : x_from_(p.x + (block.row0 + warp(block)) * p.x_stride + block.chunk0 * kChunk +
                8 * block.lane),
        x_step_(kLinearWarps * p.x_stride),
        column_(block.chunk0 * kChunk + 8 * block.lane),
        columns_(p.columns),
        rows_(block.rows - warp(block)) {
    const int32_t to = warp(block) * Of::kStageRow;
    x_to_ = block.x + (to + (block.lane ^ warp(block)));
    if (kLevels > 0) {
      const auto row = static_cast<int64_t>(block.row0 + warp(block));
      planes_from_ = static_cast<const uint4*>(p.planes) +
                     (row * block.chunks + block.chunk0) * 32 + block.lane;
      planes_step_ = kLinearWarps * 32 * block.chunks;
      planes_to_ = block.planes + (to + block.lane);
      signs_ = bits.with[0] >> warp(block);
    }
  }

  // Starts the copies of the next chunk, into its stage.
  DELTAD_DEVICE void copy(int32_t stage) {
    DELTAD_UNROLL
    for (int32_t i = 0; i < kRows / kLinearWarps; ++i) {
      constexpr int32_t kStep = kLinearWarps * Of::kStageRow;
      bool there = in_bounds(i * kLinearWarps < rows_);
      if (!in_bounds(column_ < columns_)) there = false;
      cp_async_16_or_zero(x_to_ + (stage * Of::kStage + i * kStep), x_from_ + i * x_step_, there);
      if (kLevels > 0 && (signs_ >> (i * kLinearWarps) & 1) != 0) {
        cp_async_16(planes_to_ + (stage * Of::kStage + i * kStep), planes_from_ + i * planes_step_);
      }
    }
    x_from_ += kChunk;
    column_ += kChunk;
    if (kLevels > 0) planes_from_ += 32;
  }

 private:
  using Of = Block<kRows, kLevels>;
  DELTAD_DEVICE static int32_t warp(const Of& block) { return block.thread / 32; }

  const uint16_t* x_from_;
  const int64_t x_step_;
  int32_t column_;
  const int32_t columns_, rows_;
  Shared<uint4> x_to_;
  const uint4* planes_from_ = nullptr;
  int32_t planes_step_ = 0;
  Shared<uint4> planes_to_{};
  uint32_t signs_ = 0;
};

}  // namespace deltad::cuda
