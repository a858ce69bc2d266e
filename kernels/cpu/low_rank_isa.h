// The tables of low_rank.h, one an instruction set, each defined in the file that is compiled for
// it. Included by low_rank.cc, by those files and by the linear layer of the same instruction set.
#pragma once

#include "kernels/cpu/low_rank.h"

namespace deltad::cpu {

extern const LowRankKernels kLowRankScalar;
#if defined(__x86_64__)
extern const LowRankKernels kLowRankAvx2;
extern const LowRankKernels kLowRankAvx512;
extern const LowRankKernels kLowRankAvx512Bf16;
#endif

}  // namespace deltad::cpu
