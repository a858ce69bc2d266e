#include "kernels/cpu/attention.h"

#include "base/cpu_features.h"

namespace deltad::cpu {

extern const AttentionKernels kAttentionScalar, kAttentionAvx2, kAttentionAvx512,
    kAttentionAvx512Bf16;

const AttentionKernels& attention_kernels(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kAvx512Bf16:
      return kAttentionAvx512Bf16;
    case Isa::kAvx512:
      return kAttentionAvx512;
    case Isa::kAvx2:
      return kAttentionAvx2;
    case Isa::kScalar:
      break;
  }
#else
  (void)isa;
#endif
  return kAttentionScalar;
}

}  // namespace deltad::cpu
