// Low-rank factors: AVX2.
#if defined(__x86_64__)

#include "kernels/cpu/lanes_avx2.h"
#include "kernels/cpu/low_rank_isa.h"
#include "kernels/cpu/low_rank_template.h"

namespace deltad::cpu {

const LowRankKernels kLowRankAvx2 = {shrink<DotFp32>, expand};

}  // namespace deltad::cpu

#endif
