// Rotary embedding and cache append: AVX2.
#if defined(__x86_64__)

#include "kernels/cpu/lanes_avx2.h"
#include "kernels/cpu/rope_template.h"

namespace deltad::cpu {

extern const RopeKernels kRopeAvx2;
const RopeKernels kRopeAvx2 = {rotate, append};

}  // namespace deltad::cpu

#endif
