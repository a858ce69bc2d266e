// The linear layer of prompt rows: y[r] = W·x[r] + Σ_level α·(signs of r's variant)·x[r], then an
// epilogue, for rows of any variants. Tiles of W + αS are made in registers, in fp16, and are the
// tensor cores' A operand; rows (linear_prefill_rows.h) are B. docs/kernels.md draws it.
//
// A block computes 128 or 192 outputs of a tile of rows of one variant. A row's sums are taken over
// the columns in one order, whatever its tile is and who is in it.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear_decode.h"
#include "kernels/cuda/linear_prefill_rows.h"
#include "kernels/cuda/linear_tiles.h"
#include "kernels/cuda/row_groups.h"

namespace deltad::cuda {

// Of the decode kernel's epilogues those that the prefill kernels have.
enum class LinearPrefillEpilogue : int32_t {
  kStore = static_cast<int32_t>(LinearEpilogue::kStore),
  kAddResidual = static_cast<int32_t>(LinearEpilogue::kAddResidual),
  kSiluGate = static_cast<int32_t>(LinearEpilogue::kSiluGate),
};

struct LinearPrefillParams {
  const void* x;          // packed rows
  const float* x_scale;   // [rows]
  const void* w;          // base tiles
  const SignSlot* slots;  // [slots], of this weight
  // [slots, apart_stride], ⌈outputs / 64⌉ of each slot for this weight: not 0 where α is so small
  // that W and α·S are multiplied one after the other, not as their sum (linear_prefill_apart.h)
  const uint8_t* apart;
  const RowGroups* groups;
  void* out;  // fp32 or bf16 [rows, out_stride], as the epilogue says; rows 16-byte aligned
  int64_t out_stride;
  int32_t apart_stride;
  int32_t packed_rows;  // of x
  int32_t outputs;      // padded to a multiple of 16 (SiluGate: 32)
  int32_t columns;
  int32_t w_exponent;  // W is multiplied with 2^w_exponent to be fp16: linear_prefill_range.h
  uint32_t w_factors;  // prefill_factors(w_exponent)
  LinearPrefillEpilogue epilogue;
};

// What takes bf16 to fp16 before its bits are moved, twice, in bf16: 2^exponent, less the
// difference of the two exponents' biases, 127 − 15, which the shift brings back.
constexpr uint32_t prefill_factors(int32_t w_exponent) {
  return static_cast<uint32_t>(w_exponent - (127 - 15) + 127) * 0x800080u;
}

constexpr int32_t kApartOutputs = 64;  // that one entry of `apart` is of: a warpgroup's
DELTAD_HOST_DEVICE constexpr int32_t apart_entries(int32_t outputs) {
  return (outputs + kApartOutputs - 1) / kApartOutputs;
}
constexpr int32_t kLinearPrefillStages = 4;  // of activations in shared memory

struct LinearPrefillKernel {
  const char* name;
  int32_t outputs, tile_rows;  // of a block
  int32_t levels;
  uint32_t threads;
  int32_t cycles;  // of a multiprocessor, for 64 columns of a block
  // Blocks of outputs in a cluster, which share their rows' copies: at most, and of this launch.
  int32_t most_cluster, cluster = 1;
};
// mma.sync, every architecture.
constexpr LinearPrefillKernel kLinearPrefillKernels[] = {
    {"deltad_linear_prefill", 128, 128, 0, 128, 1024, 1},
    {"deltad_linear_prefill_signs1", 128, 96, 1, 128, 768, 1},
    {"deltad_linear_prefill_signs2", 128, 96, 2, 128, 768, 1},
    {"deltad_linear_prefill_signs4", 128, 64, 4, 128, 839, 1},
};
// wgmma: sm_90a alone. Of two that take equally long the larger tiles, which read less from L2.
constexpr LinearPrefillKernel kLinearPrefillHopperKernels[] = {
    {"deltad_linear_prefill_r256", 128, 256, 0, 256, 1024, 8},
    {"deltad_linear_prefill_r256_signs1", 128, 256, 1, 256, 1024, 8},
    {"deltad_linear_prefill_r256_signs2", 128, 256, 2, 256, 1024, 8},
    {"deltad_linear_prefill_r256_signs4", 128, 256, 4, 256, 1024, 8},
    {"deltad_linear_prefill_o192", 192, 128, 0, 384, 768, 8},
    {"deltad_linear_prefill_o192_signs1", 192, 128, 1, 384, 768, 8},
    {"deltad_linear_prefill_r128", 128, 128, 0, 256, 512, 8},
    {"deltad_linear_prefill_r128_signs1", 128, 128, 1, 256, 512, 8},
    {"deltad_linear_prefill_r128_signs2", 128, 128, 2, 256, 594, 8},
    {"deltad_linear_prefill_r128_signs4", 128, 128, 4, 256, 910, 8},
};

// Bytes that L2 can send all multiprocessors in a cycle: NVIDIA's figure for the A100; of Hopper
// none is published.
constexpr int64_t kL2Bytes = 5120;
// What it sends a block for 64 columns: W, signs, and the block's part of the rows.
constexpr int64_t linear_prefill_bytes(const LinearPrefillKernel& kernel, int32_t levels) {
  return int64_t{kernel.outputs} * (kPrefillColumns * 2 + kPrefillColumns / 8 * levels) +
         kernel.tile_rows * kPrefillColumns * 2 / kernel.cluster;
}
// Multiprocessors that clusters can be on. They come in pairs, and in groups of at most 18, beyond
// which no cluster goes; of a group clusters of four and eight fill 16.
constexpr int32_t cluster_multiprocessors(int32_t multiprocessors, int32_t cluster) {
  const int32_t in_groups = (multiprocessors + 17) / 18 * 16;
  const int32_t usable = cluster <= 2 || multiprocessors < in_groups ? multiprocessors : in_groups;
  return usable / cluster * cluster;
}

// Blocks that the outputs are cut into. Those that fill the last cluster have no outputs.
constexpr int32_t linear_prefill_parts(const LinearPrefillKernel& kernel, int32_t outputs) {
  const int32_t of_cluster = kernel.outputs * kernel.cluster;
  return (outputs + of_cluster - 1) / of_cluster * kernel.cluster;
}

// In the order in which they are taken, of those that are done at the same time.
struct LinearPrefillCluster {
  int32_t blocks;
  bool padded;  // with blocks that have no outputs
};
constexpr LinearPrefillCluster kLinearPrefillClusters[] = {
    {2, false}, {4, false}, {8, false}, {1, false}, {2, true}, {4, true}, {8, true}};

// Of several kernels that give the same bits, the one that is done first on so many
// multiprocessors: turns of blocks, each as long as its busiest pipe or L2 (kernels_predicted.md).
// `levels`: the most that a variant in the batch has on this weight.
template <class Kernels, class Groups>
constexpr LinearPrefillKernel linear_prefill_kernel(const Kernels& kernels, const Groups& groups,
                                                    int32_t outputs, int32_t levels,
                                                    int32_t multiprocessors) {
  LinearPrefillKernel best{};
  int64_t least = 0;
  for (LinearPrefillKernel kernel : kernels) {
    if (kernel.levels < levels) continue;
    int64_t tiles = 0;
    for (const RowGroup& group : groups) {
      tiles += (group.end_row - group.first_row + kernel.tile_rows - 1) / kernel.tile_rows;
    }
    for (const LinearPrefillCluster& choice : kLinearPrefillClusters) {
      kernel.cluster = choice.blocks;
      const int64_t width = cluster_multiprocessors(multiprocessors, kernel.cluster);
      const int32_t parts = linear_prefill_parts(kernel, outputs);
      const bool padded = parts * kernel.outputs >= outputs + kernel.outputs;
      if (kernel.cluster > kernel.most_cluster || width == 0 || padded != choice.padded) continue;
      const int64_t blocks = tiles * parts;
      const int64_t l2 =
          linear_prefill_bytes(kernel, levels) * (blocks < width ? blocks : width) / kL2Bytes;
      const int64_t turn = l2 > kernel.cycles ? l2 : kernel.cycles;
      const int64_t time = (blocks + width - 1) / width * turn;
      if (best.name == nullptr || time < least) {
        best = kernel;
        least = time;
      }
    }
  }
  return best;
}

// Bytes of shared memory: the stages of activations and later the sums in their place, and on
// sm_90a two mbarriers for each stage.
DELTAD_HOST_DEVICE constexpr int32_t prefill_sums_stride(int32_t outputs) { return outputs + 4; }
DELTAD_HOST_DEVICE constexpr int32_t linear_prefill_barriers_at(int32_t outputs,
                                                                int32_t tile_rows) {
  const int32_t stages = kLinearPrefillStages * kPrefillColumns * 2;
  const int32_t sums = prefill_sums_stride(outputs) * 4;
  return tile_rows * (stages > sums ? stages : sums);
}
constexpr uint32_t linear_prefill_shared(const LinearPrefillKernel& kernel) {
  return static_cast<uint32_t>(linear_prefill_barriers_at(kernel.outputs, kernel.tile_rows) +
                               kLinearPrefillStages * 16);
}

// rows: of how many groups. The device cuts them into tiles; there are at most that many. The
// blocks of a cluster have the same tile.
inline Launch linear_prefill_launch(const LinearPrefillParams& p, const LinearPrefillKernel& kernel,
                                    int32_t rows, int32_t groups) {
  return {{static_cast<uint32_t>(rows / kernel.tile_rows + groups),
           static_cast<uint32_t>(linear_prefill_parts(kernel, p.outputs))},
          {kernel.threads},
          linear_prefill_shared(kernel),
          {1, static_cast<uint32_t>(kernel.cluster)}};
}

}  // namespace deltad::cuda
