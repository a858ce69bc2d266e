#include "kernels/cpu/linear.h"

#include "kernels/cpu/linear_isa.h"

namespace deltad::cpu {

const LinearKernels& linear_kernels(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return kLinearScalar;
#if defined(__x86_64__)
    case Isa::kAvx2:
      return kLinearAvx2;
    case Isa::kAvx512:
      return kLinearAvx512;
    case Isa::kAvx512Bf16:
      return kLinearAvx512Bf16;
#else
    default:
      break;
#endif
  }
  return kLinearScalar;
}

}  // namespace deltad::cpu
