#include "kernels/cpu/linear.h"

#include "kernels/cpu/linear_isa.h"

namespace deltad::cpu {

const LinearKernels& linear_kernels(Isa) { return kLinearScalar; }

}  // namespace deltad::cpu
