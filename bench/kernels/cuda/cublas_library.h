// cuBLASLt's functions, found when the program runs: it is half a gigabyte, so a machine may lack
// it, or have it in a place of its own. An emulated GPU has a stand-in
// (tests/cuda/emulated_cublas.cc).
#pragma once

#include <cublasLt.h>

namespace deltad::bench {

struct CublasLt {
  decltype(&::cublasLtCreate) create;
  decltype(&::cublasLtDestroy) destroy;
  decltype(&::cublasLtGetStatusString) status_string;
  decltype(&::cublasLtMatmulDescCreate) matmul_create;
  decltype(&::cublasLtMatmulDescDestroy) matmul_destroy;
  decltype(&::cublasLtMatmulDescSetAttribute) matmul_set;
  decltype(&::cublasLtMatrixLayoutCreate) layout_create;
  decltype(&::cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&::cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&::cublasLtMatmul) matmul;
};

// Null if the machine has none; the first call then says on stderr what was looked for.
const CublasLt* cublas_lt();

}  // namespace deltad::bench
