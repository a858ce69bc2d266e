#include "bench/kernels/cuda/cublas_library.h"

#include <dlfcn.h>

#include <cstdio>
#include <string>

namespace deltad::bench {
namespace {

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) std::fprintf(stderr, "cuBLASLt: %s\n", dlerror());
  return *function != nullptr;
}

const CublasLt* open() {
  static CublasLt f;
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr,
                 "cuBLASLt is not compared with: %s ($LD_LIBRARY_PATH can name its folder)\n",
                 dlerror());
    return nullptr;
  }
  const bool all = find(library, "cublasLtCreate", &f.create) &&
                   find(library, "cublasLtDestroy", &f.destroy) &&
                   find(library, "cublasLtGetStatusString", &f.status_string) &&
                   find(library, "cublasLtMatmulDescCreate", &f.matmul_create) &&
                   find(library, "cublasLtMatmulDescDestroy", &f.matmul_destroy) &&
                   find(library, "cublasLtMatmulDescSetAttribute", &f.matmul_set) &&
                   find(library, "cublasLtMatrixLayoutCreate", &f.layout_create) &&
                   find(library, "cublasLtMatrixLayoutDestroy", &f.layout_destroy) &&
                   find(library, "cublasLtMatmulPreferenceCreate", &f.preference_create) &&
                   find(library, "cublasLtMatmulPreferenceDestroy", &f.preference_destroy) &&
                   find(library, "cublasLtMatmulPreferenceSetAttribute", &f.preference_set) &&
                   find(library, "cublasLtMatmulAlgoGetHeuristic", &f.heuristic) &&
                   find(library, "cublasLtMatmul", &f.matmul);
  return all ? &f : nullptr;
}

}  // namespace

const CublasLt* cublas_lt() {
  static const CublasLt* const found = open();
  return found;
}

}  // namespace deltad::bench
