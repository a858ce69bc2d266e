// FitInput: the activations X that enter some matrices, laid out for the fit of signs: as a whole
// and in blocks of columns, both ways round, so that XS, XΔ and the gradient Xᵀ(XΔ − XΔ̂) are
// products of the linear layer's kernels. X itself takes the place of C = XᵀX: it is smaller where
// tokens are fewer than columns, and keeps its precision in bf16. Immutable; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/cpu_features.h"
#include "calibrate/row_products.h"
#include "calibrate/strip_kernels.h"

namespace deltad {

class FitInput {
 public:
  // x [tokens, columns] of RowProducts::type(isa)
  static Result<FitInput> make(Isa isa, const void* x, int64_t tokens, int64_t columns);

  // Some of the columns, kSweepColumns at most.
  struct Block {
    RowProducts x;             // [tokens, block]
    RowProducts x_transposed;  // [block, tokens]
    std::vector<float> gram;   // XᵀX [kSweepColumns, kSweepColumns]
  };

  Isa isa() const { return isa_; }
  int64_t tokens() const { return tokens_; }  // padded with zeros to a multiple of 64
  int64_t columns() const { return columns_; }
  int64_t padded_columns() const { return whole_.columns(); }
  const RowProducts& whole() const { return whole_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  // Of C's diagonal.
  double mean_energy() const { return mean_energy_; }

 private:
  template <typename T>
  static Result<FitInput> of(Isa isa, const T* x, int64_t tokens, int64_t columns);

  Isa isa_ = Isa::kScalar;
  int64_t tokens_ = 0, columns_ = 0;
  RowProducts whole_;
  std::vector<Block> blocks_;
  double mean_energy_ = 0;
};

}  // namespace deltad
