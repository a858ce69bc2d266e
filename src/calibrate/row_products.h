// Products of activations with bf16 matrices by the linear layer's own kernels, the fastest dense
// products there are here. A matrix lies in tiles (kernels/cpu/layout.h); the activations are laid
// out once and multiplied often. Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/cpu_features.h"
#include "base/status.h"
#include "tensor/buffer.h"

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
  // x [rows, columns] fp32, `stride` values from row to row. They are rounded to what the linear
  // layer's activations are on this instruction set.
  static Result<RowProducts> make(Isa isa, const float* x, int64_t rows, int64_t columns,
                                  int64_t stride);

  int64_t rows() const { return rows_; }
  // Those of the matrices: a multiple of 64, the last ones are zero here.
  int64_t columns() const { return columns_; }
  // out [rows, outputs] = x · wᵀ, `stride` values from row to row; w: ⌈outputs/16⌉ tiles.
  void times(const uint16_t* w, int64_t outputs, float* out, int64_t stride,
             ProductScratch* scratch) const;

 private:
  Isa isa_ = Isa::kScalar;
  int64_t rows_ = 0, columns_ = 0;
  Buffer x_, prepared_;
  std::vector<const void*> x_rows_;
};

}  // namespace deltad
