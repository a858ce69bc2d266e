#include "kernels/cpu/norm.h"

namespace deltad::cpu {

void rms_norm_scalar(void*, const float*, const float*, int64_t, float);
void rms_norm_avx2(void*, const float*, const float*, int64_t, float);
void rms_norm_avx512(void*, const float*, const float*, int64_t, float);
void rms_norm_avx512bf16(void*, const float*, const float*, int64_t, float);

RmsNormRow rms_norm_row(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kAvx512Bf16:
      return rms_norm_avx512bf16;
    case Isa::kAvx512:
      return rms_norm_avx512;
    case Isa::kAvx2:
      return rms_norm_avx2;
    case Isa::kScalar:
      break;
  }
#else
  (void)isa;
#endif
  return rms_norm_scalar;
}

}  // namespace deltad::cpu
