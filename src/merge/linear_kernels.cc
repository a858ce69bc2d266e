// For any CPU.
#define Eigen EigenPlain
#include "merge/linear_kernels_eigen.h"

namespace deltad {

const LinearKernels& linear_kernels_plain() { return kKernels; }

}  // namespace deltad
