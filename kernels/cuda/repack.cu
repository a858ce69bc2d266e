#include "kernels/cuda/device.h"
#include "kernels/cuda/repack.h"

namespace deltad::cuda {
namespace {

// The tile of 8 outputs in the fused weight that holds a part's tile.
DELTAD_DEVICE int64_t placed_tile(int32_t tile, TileRows place) {
  return 2 * (place.first + static_cast<int64_t>(tile / 2) * place.step) + tile % 2;
}

// Two columns of a row, or zeros where the matrix ends.
DELTAD_DEVICE uint32_t load_pair(const RepackBaseParams& p, int32_t row, int32_t column) {
  const uint16_t* at = p.in + static_cast<int64_t>(row) * p.columns + column;
  uint32_t pair = 0;
  if (in_bounds(row < p.rows)) {
    if (in_bounds(column < p.columns)) pair = load_global(at);
    if (in_bounds(column + 1 < p.columns)) pair |= static_cast<uint32_t>(load_global(at + 1)) << 16;
  }
  return pair;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kRepackThreads)
    deltad_repack_base(RepackBaseParams p) {
  const auto tile = static_cast<int32_t>(blockIdx.x), chunk = static_cast<int32_t>(blockIdx.y);
  const auto step = static_cast<int32_t>(threadIdx.x / 32);
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const int32_t row = kTileOutputs * tile + lane / 4;
  const int32_t column = kChunk * chunk + kStep * step + 2 * (lane % 4);
  const uint4 fragment = make_uint4(load_pair(p, row, column), load_pair(p, row, column + 8),
                                    load_pair(p, row, column + 16), load_pair(p, row, column + 24));
  const int64_t at =
      (placed_tile(tile, p.place) * chunks_of(p.columns) + chunk) * kChunkSteps + step;
  store_global(static_cast<uint4*>(p.out) + 32 * at + lane, fragment);
}

extern "C" __global__ void __launch_bounds__(kRepackThreads)
    deltad_repack_signs(RepackSignsParams p) {
  const auto tile = static_cast<int32_t>(blockIdx.x);
  const auto chunk = static_cast<int32_t>(8 * blockIdx.y + threadIdx.x / 32);
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  if (!in_bounds(chunk < chunks_of(p.columns))) return;
  const int32_t row = kTileOutputs * tile + lane / 4;
  const int32_t row_bytes = (p.columns + 7) / 8;
  const uint8_t* in = p.in + static_cast<int64_t>(row) * row_bytes;
  uint32_t words[2] = {0, 0};
  if (in_bounds(row < p.rows)) {
    for (int32_t i = 0; i < 8; ++i) {
      const int32_t byte = kChunk / 8 * chunk + 4 * (lane % 4) + i % 4 + 16 * (i / 4);
      if (in_bounds(byte < row_bytes)) {
        words[i / 4] |= static_cast<uint32_t>(load_global(in + byte)) << (8 * (i % 4));
      }
    }
  }
  const int64_t at = placed_tile(tile, p.place) * chunks_of(p.columns) + chunk;
  store_global(static_cast<uint2*>(p.out) + 32 * at + lane, make_uint2(words[0], words[1]));
}

}  // namespace deltad::cuda
