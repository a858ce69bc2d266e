// RMSNorm: AVX-512.
#if defined(__x86_64__)

#include "kernels/cpu/lanes_avx512.h"
#include "kernels/cpu/norm_template.h"

namespace deltad::cpu {

void rms_norm_avx512(void* out, const float* x, const float* weight, int64_t columns, float eps) {
  normalize_row<StoreFp32>(out, x, weight, columns, eps);
}

}  // namespace deltad::cpu

#endif
