// Low-rank factors: AVX-512 without bf16 arithmetic.
#if defined(__x86_64__)

#include "kernels/cpu/lanes_avx512.h"
#include "kernels/cpu/low_rank_isa.h"
#include "kernels/cpu/low_rank_template.h"

namespace deltad::cpu {

const LowRankKernels kLowRankAvx512 = {shrink<DotFp32>, expand};

}  // namespace deltad::cpu

#endif
