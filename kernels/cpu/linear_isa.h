// The tables of linear.h, one an instruction set, each defined in the file that is compiled for it.
// Included by linear.cc and by those files only.
#pragma once

#include "kernels/cpu/linear.h"

namespace deltad::cpu {

extern const LinearKernels kLinearScalar;
#if defined(__x86_64__)
extern const LinearKernels kLinearAvx2;
extern const LinearKernels kLinearAvx512;
extern const LinearKernels kLinearAvx512Bf16;
#endif

}  // namespace deltad::cpu
