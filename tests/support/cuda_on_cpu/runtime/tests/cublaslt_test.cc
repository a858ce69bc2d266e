// cuBLASLt's stand-in: products against sums in fp64, and what its algorithms do to the bits.
#include <cublasLt.h>

#include <bit>
#include <cmath>
#include <random>

#include "tensor/float16.h"
#include "tests/support/cuda_on_cpu/runtime/tests/fixture.h"

namespace deltad::emulated_gpu {
namespace {

class CublasLt : public GpuTest {
 protected:
  CublasLt() { EXPECT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS); }
  // Before the fixture looks for leaks.
  void TearDown() override { EXPECT_EQ(cublasLtDestroy(handle_), CUBLAS_STATUS_SUCCESS); }

  // y[n][outputs] = x[n][k] · Wᵀ, W[outputs][k] in bf16 by rows: as columns, D = Wᵀ' · X.
  struct Product {
    uint64_t outputs, n, k;
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
    cublasLtMatmulHeuristicResult_t chosen = {};
  };
  Product make(uint64_t outputs, uint64_t n, uint64_t k, uint32_t reductions) {
    Product p{outputs, n, k};
    const auto rows = static_cast<int64_t>(k);
    EXPECT_EQ(cublasLtMatmulDescCreate(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
              CUBLAS_STATUS_SUCCESS);
    const cublasOperation_t transpose = CUBLAS_OP_T;
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                             sizeof transpose),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&p.w, CUDA_R_16BF, k, outputs, rows),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&p.x, CUDA_R_16BF, k, n, rows), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(
        cublasLtMatrixLayoutCreate(&p.y, CUDA_R_32F, outputs, n, static_cast<int64_t>(outputs)),
        CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulPreference_t wish = nullptr;
    EXPECT_EQ(cublasLtMatmulPreferenceCreate(&wish), CUBLAS_STATUS_SUCCESS);
    const uint64_t workspace = 1 << 20;
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                   &workspace, sizeof workspace),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                   &reductions, sizeof reductions),
              CUBLAS_STATUS_SUCCESS);
    int count = 0;
    EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle_, p.desc, p.w, p.x, p.y, p.y, wish, 1,
                                             &p.chosen, &count),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(count, 1);
    EXPECT_EQ(cublasLtMatmulPreferenceDestroy(wish), CUBLAS_STATUS_SUCCESS);
    return p;
  }
  void destroy(const Product& p) {
    EXPECT_EQ(cublasLtMatmulDescDestroy(p.desc), CUBLAS_STATUS_SUCCESS);
    for (const auto layout : {p.w, p.x, p.y}) {
      EXPECT_EQ(cublasLtMatrixLayoutDestroy(layout), CUBLAS_STATUS_SUCCESS);
    }
  }
  cublasStatus_t multiply(const Product& p, const void* w, const void* x, float beta, void* y,
                          void* workspace, cudaStream_t stream,
                          const cublasLtMatmulAlgo_t* algorithm) {
    const float alpha = 1;
    return cublasLtMatmul(handle_, p.desc, &alpha, w, p.w, x, p.x, &beta, y, p.y, y, p.y, algorithm,
                          workspace, 1 << 20, stream);
  }
  std::vector<uint16_t> random(size_t count, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> all;
    for (size_t i = 0; i < count; ++i) all.push_back(f32_to_bf16(normal(generator)));
    return all;
  }
  void* to_device(const std::vector<uint16_t>& values) {
    int32_t* made = device_array((values.size() + 1) / 2);
    EXPECT_EQ(cudaMemcpy(made, values.data(), values.size() * 2, cudaMemcpyHostToDevice),
              cudaSuccess);
    return made;
  }
  std::vector<float> result(const int32_t* device, size_t count) {
    std::vector<float> all(count);
    for (size_t i = 0; const int32_t bits : values(device, count)) {
      all[i++] = std::bit_cast<float>(bits);
    }
    return all;
  }
  // y of the first n rows, by the algorithm that is chosen for them.
  std::vector<float> multiply(uint64_t n, uint32_t reductions) {
    constexpr uint64_t kOutputs = 8, kK = 200;
    const std::vector<uint16_t> w = random(kOutputs * kK, 1), x = random(100 * kK, 2);
    const Product p = make(kOutputs, n, kK, reductions);
    void *on_w = to_device(w), *on_x = to_device(x);
    int32_t *y = device_array(kOutputs * n), *workspace = device_array(1 << 18);
    const cudaStream_t a = stream();
    EXPECT_EQ(multiply(p, on_w, on_x, 0, y, workspace, a, &p.chosen.algo), CUBLAS_STATUS_SUCCESS);
    std::vector<float> all = result(y, kOutputs * n);
    for (uint64_t i = 0; i < all.size(); ++i) {
      double sum = 0, size = 0;
      for (uint64_t c = 0; c < kK; ++c) {
        const double term =
            double{bf16_to_f32(w[i % kOutputs * kK + c])} * bf16_to_f32(x[i / kOutputs * kK + c]);
        sum += term, size += std::abs(term);
      }
      EXPECT_NEAR(all[i], sum, size * kK * 0x1p-24);
    }
    destroy(p);
    return all;
  }

  cublasLtHandle_t handle_ = nullptr;
};

TEST_F(CublasLt, ProductsAreRight) {
  for (const uint64_t n : {1, 20, 100}) multiply(n, CUBLASLT_REDUCTION_SCHEME_MASK);
}

// What determinism has to reckon with: the algorithm follows from the size, the bits from it.
TEST_F(CublasLt, BitsOfARowFollowFromTheAlgorithm) {
  const auto first_row = [](std::vector<float> all) {
    all.resize(8);
    return all;
  };
  EXPECT_NE(first_row(multiply(1, CUBLASLT_REDUCTION_SCHEME_MASK)),
            first_row(multiply(100, CUBLASLT_REDUCTION_SCHEME_MASK)));
  EXPECT_EQ(first_row(multiply(1, CUBLASLT_REDUCTION_SCHEME_NONE)),
            first_row(multiply(20, CUBLASLT_REDUCTION_SCHEME_NONE)));
}

TEST_F(CublasLt, AddsToWhatIsThereAndIsOrdered) {
  const Product p = make(8, 1, 16, CUBLASLT_REDUCTION_SCHEME_NONE);
  const std::vector<uint16_t> ones(8 * 16, f32_to_bf16(1));
  void *w = to_device(ones), *x = to_device({ones.begin(), ones.begin() + 16});
  int32_t* y = device_array(8);
  const cudaStream_t a = stream(), b = stream();
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_CUDA(cudaMemsetAsync(y, 0, 32, a));
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(multiply(p, w, x, 1, y, nullptr, a, &p.chosen.algo), CUBLAS_STATUS_SUCCESS);
  }
  EXPECT_EQ(result(y, 8)[7], 48);
  EXPECT_EQ(report(), "");
  ASSERT_EQ(multiply(p, w, x, 1, y, nullptr, a, &p.chosen.algo), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(multiply(p, w, x, 1, y, nullptr, b, &p.chosen.algo), CUBLAS_STATUS_SUCCESS);
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(multiply(p, w, x, 1, y, nullptr, a, nullptr), CUBLAS_STATUS_INVALID_VALUE)
      << "no algorithm";
  destroy(p);
  const std::vector<FaultKind> kinds = expected_faults();
  EXPECT_EQ(kinds.front(), FaultKind::kRace);
  EXPECT_EQ(kinds.back(), FaultKind::kMisuse);
}

TEST_F(CublasLt, WhatIsNotDestroyedIsALeak) {
  const Product p = make(8, 1, 16, CUBLASLT_REDUCTION_SCHEME_NONE);
  EXPECT_NE(leaks().find("cuBLASLt layout made at"), std::string::npos) << leaks();
  destroy(p);
}

}  // namespace
}  // namespace deltad::emulated_gpu
