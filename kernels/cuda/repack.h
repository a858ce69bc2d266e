// Brings one part of a weight, as the file has it, into tile order (linear_tiles.h). Run once, at
// load.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear_tiles.h"

namespace deltad::cuda {

struct RepackBaseParams {
  const uint16_t* in;  // bf16 [rows, columns]
  void* out;           // base tiles of the fused weight
  int32_t rows, columns;
  TileRows place;
};

struct RepackSignsParams {
  const uint8_t* in;  // [rows, row_bytes], lowest bit first; padding bits are 0
  void* out;          // sign tiles of the fused weight
  int32_t rows, columns;
  TileRows place;
};

constexpr uint32_t kRepackThreads = 256;
constexpr char kRepackBaseKernel[] = "deltad_repack_base";
constexpr char kRepackSignsKernel[] = "deltad_repack_signs";

// A block a tile of 8 outputs and a chunk, a warp a step.
inline Launch repack_base_launch(const RepackBaseParams& p) {
  return {{static_cast<uint32_t>(padded_outputs(p.rows) / kTileOutputs),
           static_cast<uint32_t>(chunks_of(p.columns))},
          {kRepackThreads},
          0};
}
// A block a tile of 8 outputs and eight chunks, a warp a chunk.
inline Launch repack_signs_launch(const RepackSignsParams& p) {
  return {{static_cast<uint32_t>(padded_outputs(p.rows) / kTileOutputs),
           static_cast<uint32_t>((chunks_of(p.columns) + 7) / 8)},
          {kRepackThreads},
          0};
}

}  // namespace deltad::cuda
