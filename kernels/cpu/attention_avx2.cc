// Attention: AVX2.
#if defined(__x86_64__)

#include "kernels/cpu/lanes_avx2.h"
// Lanes come first: the template is written on them.
#include "kernels/cpu/attention_template.h"

namespace deltad::cpu {

extern const AttentionKernels kAttentionAvx2;
const AttentionKernels kAttentionAvx2 = {prepare, segment, combine, finish<StoreFp32>};

}  // namespace deltad::cpu

#endif
