// Activations as 16-bit integers, cut into bit planes for the 1-bit tensor core:
// q = round(x / scale), scale = max|x| / 32767 of the row. Then Σ ±x ≈ scale · (2 Σ q·bit − Σ q),
// where the sums are exact: what a row's signs give depends on no order and on no other row.
// Columns are at most 32768, so that the sums fit 32 bits.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear_tiles.h"

namespace deltad::cuda {

struct SignPlanesParams {
  const uint16_t* x;  // bf16 [rows, x_stride], rows 16-byte aligned, padded with zeros to whole 16
                      // bytes
  void* planes;       // [rows][chunks][32 lanes] 16 bytes (linear_tiles.h)
  float* scale;       // [rows]
  int32_t* sum;       // [rows], Σ q
  int64_t x_stride;
  int32_t rows, columns;
};

constexpr uint32_t kSignPlanesThreads = 256;
constexpr int32_t kSignPlanesChunks = 8;  // that a block makes
constexpr char kSignPlanesKernel[] = "deltad_sign_planes";

// Blocks of a row that make planes.
DELTAD_HOST_DEVICE constexpr int32_t sign_planes_parts(int32_t columns) {
  return (chunks_of(columns) + kSignPlanesChunks - 1) / kSignPlanesChunks;
}

// One block more for each row: its sum.
inline Launch sign_planes_launch(const SignPlanesParams& p) {
  return {{static_cast<uint32_t>(p.rows), static_cast<uint32_t>(sign_planes_parts(p.columns) + 1)},
          {kSignPlanesThreads},
          kSignPlanesThreads / 32 * 4};
}

}  // namespace deltad::cuda
