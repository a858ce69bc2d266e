#include "calibrate/strip_kernels_inl.h"

namespace deltad {

const StripKernels kStripAvx512 = kKernels;

}  // namespace deltad
