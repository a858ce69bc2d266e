// Products of activations with bf16 matrices by the linear layer's own kernels, the fastest dense
// products there are here. A matrix lies in tiles (kernels/cpu/layout.h); the activations are laid
// out once and multiplied often. Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/cpu_features.h"
#include "base/status.h"
#include "tensor/buffer.h"
#include "tensor/dtype.h"

namespace deltad {

// Room for a matrix in tiles, which the kernels want aligned; it only grows.
class TileRoom {
 public:
  // Whatever was there is lost when it grows. Throws std::bad_alloc.
  uint16_t* of(int64_t values);
  uint16_t* data() const { return buffer_.as<uint16_t>(); }

 private:
  Buffer buffer_;
};

// What a product needs beside its operands: of one thread, kept from call to call.
struct ProductScratch {
  Buffer worker;
  std::vector<void*> rows;
};

class RowProducts {
 public:
  RowProducts() = default;
  // What the linear layer's activations are on this instruction set.
  static DType type(Isa isa) { return isa == Isa::kAvx512Bf16 ? DType::kBF16 : DType::kF32; }

  // x [rows, columns] of type(isa), `stride` values from row to row.
  static Result<RowProducts> make(Isa isa, const void* x, int64_t rows, int64_t columns,
                                  int64_t stride);
  // The same of fp32 values, which are rounded to type(isa).
  static Result<RowProducts> rounded(Isa isa, const float* x, int64_t rows, int64_t columns);

  int64_t rows() const { return rows_; }
  // Those of the matrices: a multiple of 64. Where x has fewer, it has zeros.
  int64_t columns() const { return columns_; }
  // out [rows, outputs] = x · wᵀ, `stride` values from row to row; w: ⌈outputs/16⌉ tiles.
  void times(const uint16_t* w, int64_t outputs, float* out, int64_t stride,
             ProductScratch* scratch) const;

 private:
  Isa isa_ = Isa::kScalar;
  int64_t rows_ = 0, columns_ = 0;
  // As the kernels lay it out; or x itself, which they read only if there is nothing to lay out.
  Buffer prepared_, x_;
  std::vector<const void*> x_rows_;
};

}  // namespace deltad
