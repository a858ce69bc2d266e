// Attention: plain C++.
#include "kernels/cpu/lanes_scalar.h"
// Lanes come first: the template is written on them.
#include "kernels/cpu/attention_template.h"

namespace deltad::cpu {

extern const AttentionKernels kAttentionScalar;
const AttentionKernels kAttentionScalar = {prepare, segment, combine, finish<StoreFp32>};

}  // namespace deltad::cpu
