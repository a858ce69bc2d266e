// What the fit of signs does value by value, once for each instruction set. Values of a block of
// rows lie in strips of 16 rows: [strip][column][16], so that a vector holds one column of a strip;
// values of its products by token: [token][rows]. Pure functions; any thread.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "base/cpu_features.h"

namespace deltad {

constexpr int64_t kStripRows = 16;
constexpr int64_t kSweepColumns = 64;  // that are chosen between two products

struct StripSums {
  int64_t zeros = 0;
  double squares = 0;
  bool finite = true;
};

// The signs of kSweepColumns columns, one after the other, in all strips.
struct SweepStep {
  int64_t strips, columns;  // columns: of these that are there
  const float* gram;        // [kSweepColumns, kSweepColumns]: C of these columns
  float damping;            // added to its diagonal
  const float* gradient;    // [kSweepColumns, rows]: C(δ − δ̂)
  int levels;
  const float* alpha[kMaxLevels];  // [rows]
  const float* scale;              // [rows]: the largest of these
  int64_t strip_values;            // from one strip to the next
  const float* delta;              // of the first of the columns
  float* signs[kMaxLevels];        // changed in place
  uint16_t* moved;  // by how much δ̂ grows, in units of scale: tiles [rows, kSweepColumns]
};

struct StripKernels {
  // delta [rows, columns] → strip; rows ≤ 16, those that lack become 0.
  StripSums (*load)(const double* delta, int64_t rows, int64_t columns, float* strip);
  // signs of left, and what they leave of it with the means of its absolute values as α [16]; or
  // with α as it is if `given`.
  void (*plain_level)(int64_t columns, float* left, float* signs, float* alpha, bool given);
  // A strip as a tile of a bf16 matrix; columns is even.
  void (*pack_tile)(int64_t columns, const float* strip, uint16_t* tile);
  // left = δ − Σ α·s of a strip; the sum of its squares. signs: of the strip; alpha: its 16.
  double (*residual)(int64_t columns, int levels, const float* const* alpha, const float* delta,
                     const float* const* signs, float* left);
  // p [tokens, rows] −= scale·y, and the same as tiles of a bf16 matrix [rows, tokens]; tokens is
  // even.
  void (*subtract)(int64_t strips, int64_t tokens, const float* scale, const float* y, float* p,
                   uint16_t* tiles);
  // z = scale·(u − p)
  void (*difference)(int64_t strips, int64_t tokens, const float* scale, const float* u,
                     const float* p, float* z);
  // sums[r] = Σ x·y over tokens
  void (*dot)(int64_t strips, int64_t tokens, const float* x, const float* y, double* sums);
  // True if any sign changed.
  bool (*sweep)(const SweepStep& step);
  // bits of each of `rows` rows, row_bytes = ⌈columns/8⌉ apart
  void (*pack_bits)(int64_t columns, const float* signs, int64_t rows, uint8_t* bits);
};

const StripKernels& strip_kernels(Isa isa);

extern const StripKernels kStripScalar, kStripAvx2, kStripAvx512;

}  // namespace deltad
