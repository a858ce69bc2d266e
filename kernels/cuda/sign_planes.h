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
  const uint16_t* x;  // bf16 [rows, x_stride]
  void* planes;       // [rows][chunks][32 lanes] 16 bytes (linear_tiles.h)
  float* scale;       // [rows]
  int32_t* sum;       // [rows], Σ q
  int64_t x_stride;
  int32_t rows, columns;
};

constexpr uint32_t kSignPlanesThreads = 256;
constexpr char kSignPlanesKernel[] = "deltad_sign_planes";

inline Launch sign_planes_launch(const SignPlanesParams& p) {
  return {{static_cast<uint32_t>(p.rows)}, {kSignPlanesThreads}, 2 * kSignPlanesThreads / 32 * 4};
}

}  // namespace deltad::cuda
