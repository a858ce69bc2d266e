// LinearKernels: dense fp32 linear algebra over plain arrays, as the Eigen library computes it,
// once for any CPU and once for those with AVX2. All matrices are row-major and contiguous. Pure
// functions, any thread; each uses one thread, and may throw std::bad_alloc.
#pragma once

#include <cstdint>

namespace deltad {

struct LinearKernels {
  // a [m, n] = u · diag(s) · vᵀ with u [m, p], s [p] falling, v [n, p], p = min(m, n). False if it
  // did not converge.
  bool (*svd)(int64_t m, int64_t n, const float* a, float* u, float* s, float* v);
  // out [m, n] = a · b, with a [m, k] (or stored as [k, m] if a_transposed), b [k, n] (or [n, k]).
  void (*multiply)(int64_t m, int64_t n, int64_t k, const float* a, bool a_transposed,
                   const float* b, bool b_transposed, float* out);
  // a [m, n], m ≥ n, becomes q · r: q [m, n] with orthonormal columns in a's place, and the upper
  // triangle r [n, n].
  void (*orthonormalize)(int64_t m, int64_t n, float* a, float* r);
};

const LinearKernels& linear_kernels_plain();
const LinearKernels& linear_kernels_avx2();

}  // namespace deltad
