// For any processor, and the choice among the forms.
#include "calibrate/strip_kernels_inl.h"

namespace deltad {

const StripKernels kStripScalar = kKernels;

const StripKernels& strip_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return kStripAvx512;
  if (isa == Isa::kAvx2) return kStripAvx2;
#endif
  return kStripScalar;
}

}  // namespace deltad
