// The linear layer of generated rows: y[r] = W·x[r] + Σ_level α·(signs of r's variant)·x[r], then
// an epilogue. One pass over W for all rows, W in bf16 and each variant's signs as packed bits; see
// linear_tiles.h for the operands' order and docs/kernels.md for the way of the data.
//
// A block computes 64 outputs over a part of the columns, of all rows if they are at most 16, else
// of 32 of them; a warp 8 outputs. Rows whose variant replaces the weight are left out of the pass
// over W; further blocks, a group's rows each, take them through the weight that they have instead.
// Nothing in the arithmetic of a row depends on how many rows there are or what they are: the parts
// of the columns ("splits") follow from the weight's shape, base sums are taken in one order, sign
// sums are integers.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear_tiles.h"
#include "kernels/cuda/rope_append.h"
#include "kernels/cuda/row_groups.h"

namespace deltad::cuda {

constexpr int32_t kMaxSignLevels = 4;

// What a variant's slot does to one weight: levels of signs; the first that is not there is null.
struct SignSlot {
  const void* signs[kMaxSignLevels];   // sign tiles
  const float* alpha[kMaxSignLevels];  // [outputs]
};

// A weight that a variant has instead of the base's, of the same columns: its rows do not read the
// base. The variant's signs, if any, are of these outputs.
struct DenseSlot {
  const void* w;    // base tiles; null: there is none
  int32_t outputs;  // padded as the base's; more than it or fewer
};

enum class LinearEpilogue : int32_t {
  kStore,        // out[r, i] = y             fp32
  kAddResidual,  // out[r, i] += y            fp32
  kSiluGate,     // out[r, i] = silu(gate) · up, bf16; outputs 32j … 32j+15 are gates and
                 // 32j+16 … 32j+31 their ups
  kRotary,       // outputs are heads of q, of k, of v; what rope_append would do with them: q goes
                 // to rope.qkv, rotated, k and v only to the cache
};

struct LinearParams {
  const uint16_t* x;         // bf16 [rows, x_stride], rows 16-byte aligned, padded with zeros
                             // to whole 16 bytes
  const void* w;             // base tiles
  const SignSlot* slots;     // [slots], of this weight
  const DenseSlot* dense;    // [slots]; null if no variant in the batch has one
  const void* planes;        // x as bit planes (sign_planes.h); rows of variants only are read
  const float* plane_scale;  // [rows]
  const int32_t* plane_sum;  // [rows]
  const RowGroups* groups;
  void* out;  // fp32 or bf16 [rows, out_stride]; a row's own outputs are written
  // Null without splits, unless kRotary has heads of several blocks:
  float* base_parts;    // [splits, rows, linear_widest]
  int32_t* sign_parts;  // [splits, the kernel's levels, rows, linear_widest]
  int32_t* arrivals;    // [output blocks, row tiles], all zero before and after
  int64_t x_stride, out_stride;
  int32_t rows;
  int32_t outputs;  // the base's, padded to a multiple of 16 (SiluGate: 32)
  int32_t columns;
  // Without dense weights 0: the most outputs that one has; row tiles of their groups, or more.
  int32_t dense_outputs, dense_tiles;
  int32_t splits;  // linear_decode_splits; at most a part a chunk
  LinearEpilogue epilogue;
  RopeAppendParams rope;  // with kRotary; `out` is not used then
};

// Of the base and of what replaces it.
DELTAD_HOST_DEVICE constexpr int32_t linear_widest(const LinearParams& p) {
  return p.outputs > p.dense_outputs ? p.outputs : p.dense_outputs;
}

constexpr int32_t kLinearWarps = 8;
constexpr uint32_t kLinearThreads = 32 * kLinearWarps;
constexpr int32_t kLinearOutputs = kLinearWarps * kTileOutputs;  // of a block
// Levels of a row that a block may have for two of it to be on a multiprocessor.
constexpr bool linear_two_blocks(int32_t block_rows, int32_t levels) {
  return levels == 0 || (block_rows == 16 && levels == 1);
}
// Pieces of the base in a block's ring, of 16 bytes a lane, 4 KiB a block: a chunk's, or two
// chunks' where a multiprocessor has one block only.
constexpr int32_t linear_ring(int32_t block_rows, int32_t levels) {
  return linear_two_blocks(block_rows, levels) ? kChunkSteps : 2 * kChunkSteps;
}
// Chunks of a warp's base tiles that the L2 cache is asked for before the kernel before has ended.
constexpr int32_t kLinearPrefetch = 3;
// Pieces of signs in their ring, of 8 bytes a lane.
constexpr int32_t kLinearSignRing = 16;  // a power of two
// Stages of activations: one in use, one under way.
constexpr int32_t kLinearStages = 2;

// Blocks of outputs in which whole heads of q, k and v lie. 0: heads that do not.
DELTAD_HOST_DEVICE constexpr int32_t linear_whole_heads(int32_t head_dim) {
  if (head_dim % 16 != 0) return 0;
  int32_t blocks = 1;
  while (blocks * kLinearOutputs % head_dim != 0) ++blocks;
  return blocks;
}
// Blocks of outputs that are finished by one of them with kRotary, as heads must be. 0: kRotary is
// not to be used, as heads do not lie in blocks or a set of them has no room in shared memory.
constexpr int32_t kMaxHeadBlocks = 7;
constexpr int32_t linear_head_blocks(int32_t head_dim) {
  const int32_t blocks = linear_whole_heads(head_dim);
  return blocks <= kMaxHeadBlocks ? blocks : 0;
}

// Into how many parts the columns are cut: enough blocks for every multiprocessor of a large device
// twice, no part shorter than four chunks (if there are as many).
constexpr int32_t linear_decode_splits(int32_t outputs, int32_t columns) {
  constexpr int32_t kBlocksWanted = 2 * 132;
  const int32_t blocks = (outputs + kLinearOutputs - 1) / kLinearOutputs;
  const int32_t longest = chunks_of(columns) / 4;
  const int32_t wanted = kBlocksWanted / blocks;
  const int32_t splits = wanted < longest ? wanted : longest;
  return splits > 1 ? splits : 1;
}

// What a batch needs: rows of a block, and levels of signs that a row may have.
struct LinearKernel {
  const char* name;
  int32_t block_rows, levels;
};
constexpr LinearKernel kLinearKernels[] = {
    {"deltad_linear_r16", 16, 0},        {"deltad_linear_r16_signs1", 16, 1},
    {"deltad_linear_r16_signs2", 16, 2}, {"deltad_linear_r16_signs4", 16, 4},
    {"deltad_linear_r32", 32, 0},        {"deltad_linear_r32_signs1", 32, 1},
    {"deltad_linear_r32_signs2", 32, 2}};

// `levels`: the most that a variant in the batch has on this weight. Each row and level keeps two
// registers, so rows of more than two levels are 16 a block.
constexpr LinearKernel linear_decode_kernel(int32_t rows, int32_t levels) {
  const int32_t block_rows = rows <= 16 || levels > 2 ? 16 : 32;
  for (const LinearKernel& kernel : kLinearKernels) {
    if (kernel.block_rows == block_rows && kernel.levels >= levels) return kernel;
  }
  return {};
}

// Bytes of shared memory: the ring, the stages of x and, with signs, their ring, the stages of
// planes, and what a block knows of its rows.
constexpr uint32_t linear_decode_shared(const LinearKernel& kernel) {
  const auto threads = static_cast<int32_t>(kLinearThreads);
  const int32_t ring = linear_ring(kernel.block_rows, kernel.levels) * threads * 16 +
                       (kernel.levels > 0 ? kLinearSignRing * threads * 8 : 0);
  const int32_t stages =
      kLinearStages * kernel.block_rows * 2 * kChunk * (kernel.levels > 0 ? 2 : 1);
  const int32_t items = kernel.block_rows * kernel.levels * 8;
  const int32_t words = kernel.block_rows + kMaxSignLevels + 3;
  return static_cast<uint32_t>(ring + stages + items + 4 * words);
}

DELTAD_HOST_DEVICE constexpr int32_t row_tiles(int32_t rows, int32_t block_rows) {
  return (rows + block_rows - 1) / block_rows;
}

inline Launch linear_decode_launch(const LinearParams& p, const LinearKernel& kernel) {
  return {{static_cast<uint32_t>(row_tiles(p.rows, kernel.block_rows) + p.dense_tiles),
           static_cast<uint32_t>((linear_widest(p) + kLinearOutputs - 1) / kLinearOutputs),
           static_cast<uint32_t>(p.splits)},
          {kLinearThreads},
          linear_decode_shared(kernel)};
}

}  // namespace deltad::cuda
