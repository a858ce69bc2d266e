// RMSNorm: plain C++.

#include "kernels/cpu/lanes_scalar.h"
#include "kernels/cpu/norm_template.h"

namespace deltad::cpu {

void rms_norm_scalar(void* out, const float* x, const float* weight, int64_t columns, float eps) {
  normalize_row<StoreFp32>(out, x, weight, columns, eps);
}

}  // namespace deltad::cpu
