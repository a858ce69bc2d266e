// Matrix products for the stand-in of cuBLASLt. Sums are in fp32, in an order that the algorithm
// says: as on a real device, another algorithm gives other bits.
#pragma once

#include <cstdint>

#include "tests/support/cuda_on_cpu/runtime/gpu.h"
#include "tests/support/cuda_on_cpu/runtime/include/cublasLt.h"

namespace deltad::emulated_gpu {

struct Layout {
  cudaDataType type;
  int32_t order;  // cublasLtOrder_t
  uint64_t rows, columns;
  int64_t ld;  // elements from a column to the next (by rows: from a row)
  int32_t batches;
  int64_t stride;  // elements from a batch to the next
};

struct Algorithm {
  uint64_t mark;      // tells it from what nobody chose
  int32_t id;         // 0: sums of 16 terms, 1: of 32, added in order
  int32_t splits;     // parts of the sum, added at the end
  int32_t reduction;  // cublasLtReductionScheme_t
};
constexpr uint64_t kAlgorithmMark = 0xa160c0de;

// D = alpha · op(A) · op(B) + beta · C
struct MatrixProduct {
  Layout a, b, c, d;
  bool transpose_a, transpose_b;
  const void *at_a, *at_b, *at_c;
  void *at_d, *workspace;
  float alpha, beta;
  Algorithm algorithm;

  uint64_t m() const { return d.rows; }
  uint64_t n() const { return d.columns; }
  uint64_t k() const { return transpose_a ? a.rows : a.columns; }
  // Of op(A), op(B), C and D; "" if they go together.
  const char* wrong() const;
  size_t workspace_bytes() const;
  void run(Gpu& gpu, const Operation& operation) const;
};

size_t element_bytes(cudaDataType type);

}  // namespace deltad::emulated_gpu
