// Low-rank factors: plain C++.
#include "kernels/cpu/lanes_scalar.h"
#include "kernels/cpu/low_rank_isa.h"
#include "kernels/cpu/low_rank_template.h"

namespace deltad::cpu {

const LowRankKernels kLowRankScalar = {shrink<DotFp32>, expand};

}  // namespace deltad::cpu
