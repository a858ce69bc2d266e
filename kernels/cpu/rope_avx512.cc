// Rotary embedding and cache append: AVX-512.
#if defined(__x86_64__)

#include "kernels/cpu/lanes_avx512.h"
#include "kernels/cpu/rope_template.h"

namespace deltad::cpu {

extern const RopeKernels kRopeAvx512;
const RopeKernels kRopeAvx512 = {rotate, append};

}  // namespace deltad::cpu

#endif
