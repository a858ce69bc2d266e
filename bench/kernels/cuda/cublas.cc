#include "bench/kernels/cuda/cublas.h"

#include <fmt/format.h>

namespace deltad::bench {
namespace {

constexpr size_t kWorkspace = size_t{32} << 20;

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(fmt::format("{}: {}", call, cublas_lt()->status_string(status)));
}

}  // namespace

// In cuBLAS's column-major words: Y [outputs × rows] = Wᵀ [columns × outputs]ᵀ · X [columns ×
// rows].
CublasLinear::CublasLinear(Card& card, int32_t outputs, int32_t columns, int32_t rows)
    : card_(card), workspace_(card.zeros(kWorkspace)) {
  if (cublas_lt() == nullptr) fail("there is no cuBLASLt");
  const CublasLt& lt = *cublas_lt();
  const auto m = static_cast<uint64_t>(outputs), k = static_cast<uint64_t>(columns),
             n = static_cast<uint64_t>(rows);
  const auto wide = static_cast<int64_t>(columns);
  check(lt.create(&handle_), "cublasLtCreate");
  check(lt.matmul_create(&matmul_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "MatmulDescCreate");
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check(lt.matmul_set(matmul_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
        "MatmulDescSetAttribute");
  check(lt.layout_create(&w_, CUDA_R_16BF, k, m, wide), "MatrixLayoutCreate");
  check(lt.layout_create(&x_, CUDA_R_16BF, k, n, wide), "MatrixLayoutCreate");
  check(lt.layout_create(&y_, CUDA_R_32F, m, n, outputs), "MatrixLayoutCreate");
  cublasLtMatmulPreference_t preference = nullptr;
  check(lt.preference_create(&preference), "MatmulPreferenceCreate");
  check(lt.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                          sizeof kWorkspace),
        "MatmulPreferenceSetAttribute");
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  check(lt.heuristic(handle_, matmul_, w_, x_, y_, y_, preference, 1, &found, &count),
        "MatmulAlgoGetHeuristic");
  check(lt.preference_destroy(preference), "MatmulPreferenceDestroy");
  if (count == 0) fail("cuBLASLt has no algorithm for such a product");
  algorithm_ = found.algo;
}

CublasLinear::~CublasLinear() {
  for (cublasLtMatrixLayout_t layout : {w_, x_, y_}) cublas_lt()->layout_destroy(layout);
  cublas_lt()->matmul_destroy(matmul_);
  cublas_lt()->destroy(handle_);
}

void CublasLinear::run(float* y, const uint16_t* w, const uint16_t* x) {
  const float one = 1, zero = 0;
  check(cublas_lt()->matmul(handle_, matmul_, &one, w, w_, x, x_, &zero, y, y_, y, y_, &algorithm_,
                            workspace_.data(), kWorkspace, card_.device().compute()),
        "cublasLtMatmul");
}

}  // namespace deltad::bench
