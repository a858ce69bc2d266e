// How the weights of a linear layer lie in device memory, for the decode kernel: tiles of 8 outputs
// × 256 columns ("a chunk"), in the order in which the tensor core's B operand wants them, so that
// a warp reads whole lines straight into its fragments. docs/kernels.md draws them.
//
// Base:   [outputs / 8][chunks][8 steps of 32 columns][32 lanes] 16 bytes. Lane 4g + t holds output
//         g: columns 2t, 2t+1 | 2t+8, 2t+9 | 2t+16, 2t+17 | 2t+24, 2t+25 of the step, in bf16.
// Signs:  [outputs / 8][chunks][32 lanes] 8 bytes. Lane 4g + t holds output g: columns 32t … 32t+31
//         | 128+32t … 128+32t+31 of the chunk, lowest bit first; 1 is plus.
// Planes: [rows][chunks][32 lanes] 16 bytes: activations as 16-bit integers, bit p of column c is
//         plane p's. Lane 4g + t holds planes g and g+8 of columns 32t … 32t+31, then of
//         128+32t … 128+32t+31.
// Columns are padded with zeros to whole chunks, outputs to multiples of 16.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace deltad::cuda {

constexpr int32_t kTileOutputs = 8;  // the mma's n
constexpr int32_t kChunk = 256;      // columns: the 1-bit mma's k
constexpr int32_t kStep = 32;        // columns that 16 bytes of a lane hold: two bf16 mma
constexpr int32_t kChunkSteps = kChunk / kStep;

DELTAD_HOST_DEVICE constexpr int32_t chunks_of(int32_t columns) {
  return (columns + kChunk - 1) / kChunk;
}
constexpr int32_t padded_outputs(int32_t outputs) { return (outputs + 15) / 16 * 16; }

// In units of 16 bytes.
constexpr int64_t base_tiles_size(int32_t outputs, int32_t columns) {
  return int64_t{padded_outputs(outputs)} / kTileOutputs * chunks_of(columns) * kChunkSteps * 32;
}
// In units of 8 bytes.
constexpr int64_t sign_tiles_size(int32_t outputs, int32_t columns) {
  return int64_t{padded_outputs(outputs)} / kTileOutputs * chunks_of(columns) * 32;
}
// In units of 16 bytes.
constexpr int64_t planes_size(int32_t rows, int32_t columns) {
  return int64_t{rows} * chunks_of(columns) * 32;
}

// Where a part's rows go among the outputs of a fused weight: rows 16i … 16i+15 become outputs
// 16 (first + i·step) …. A part alone or before others has step 1, gate and up take turns with 2.
struct TileRows {
  int32_t first = 0, step = 1;

  DELTAD_HOST_DEVICE constexpr int32_t output_of(int32_t row) const {
    return 16 * (first + row / 16 * step) + row % 16;
  }
};

}  // namespace deltad::cuda
