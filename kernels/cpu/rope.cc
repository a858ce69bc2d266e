#include "kernels/cpu/rope.h"

#include "base/cpu_features.h"

namespace deltad::cpu {

extern const RopeKernels kRopeScalar, kRopeAvx2, kRopeAvx512, kRopeAvx512Bf16;

const RopeKernels& rope_kernels(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kAvx512Bf16:
      return kRopeAvx512Bf16;
    case Isa::kAvx512:
      return kRopeAvx512;
    case Isa::kAvx2:
      return kRopeAvx2;
    case Isa::kScalar:
      break;
  }
#else
  (void)isa;
#endif
  return kRopeScalar;
}

}  // namespace deltad::cpu
