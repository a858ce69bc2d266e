// The emulated GPU's cuBLASLt, for the benchmark of kernels.
#include "bench/kernels/cuda/cublas_library.h"

namespace deltad::bench {

const CublasLt* cublas_lt() {
  static const CublasLt f = {cublasLtCreate,
                             cublasLtDestroy,
                             cublasLtGetStatusString,
                             cublasLtMatmulDescCreate,
                             cublasLtMatmulDescDestroy,
                             cublasLtMatmulDescSetAttribute,
                             cublasLtMatrixLayoutCreate,
                             cublasLtMatrixLayoutDestroy,
                             cublasLtMatmulPreferenceCreate,
                             cublasLtMatmulPreferenceDestroy,
                             cublasLtMatmulPreferenceSetAttribute,
                             cublasLtMatmulAlgoGetHeuristic,
                             cublasLtMatmul};
  return &f;
}

}  // namespace deltad::bench
