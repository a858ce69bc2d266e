// What cuBLASLt makes of y[r] = W·x[r], as the measure for the linear kernels: bf16 in, fp32 sums
// and results, the first algorithm that it proposes.
#pragma once

#include "bench/kernels/cuda/bench.h"
#include "bench/kernels/cuda/cublas_library.h"

namespace deltad::bench {

// Only where cublas_lt() finds it.
class CublasLinear {
 public:
  // W [outputs, columns], x [rows, columns], y [rows, outputs], all row-major.
  CublasLinear(Card& card, int32_t outputs, int32_t columns, int32_t rows);
  ~CublasLinear();
  CublasLinear(const CublasLinear&) = delete;

  void run(float* y, const uint16_t* w, const uint16_t* x);

 private:
  Card& card_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t matmul_ = nullptr;
  cublasLtMatrixLayout_t w_ = nullptr, x_ = nullptr, y_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  DeviceMemory workspace_;
};

}  // namespace deltad::bench
