#include "calibrate/strip_kernels_inl.h"

namespace deltad {

const StripKernels kStripAvx2 = kKernels;

}  // namespace deltad
