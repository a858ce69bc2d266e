// Attention: AVX-512, output in bf16.
#if defined(__x86_64__)

#include "kernels/cpu/lanes_avx512.h"
// Lanes come first: the template is written on them.
#include "kernels/cpu/attention_template.h"

namespace deltad::cpu {

extern const AttentionKernels kAttentionAvx512Bf16;
const AttentionKernels kAttentionAvx512Bf16 = {prepare, segment, combine, finish<StoreBf16>};

}  // namespace deltad::cpu

#endif
