// Compiled for AVX2 and FMA (CMakeLists.txt); on other processors, plain.
#define Eigen EigenAvx2
#include "merge/linear_kernels_eigen.h"

namespace deltad {

const LinearKernels& linear_kernels_avx2() { return kKernels; }

}  // namespace deltad
