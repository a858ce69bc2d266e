// Rotary embedding and cache append: plain C++.

#include "kernels/cpu/lanes_scalar.h"
#include "kernels/cpu/rope_template.h"

namespace deltad::cpu {

extern const RopeKernels kRopeScalar;
const RopeKernels kRopeScalar = {rotate, append};

}  // namespace deltad::cpu
