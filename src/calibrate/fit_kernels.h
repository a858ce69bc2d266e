// The dense products of this folder: those of src/merge, in the form for this CPU.
#pragma once

#include "base/cpu_features.h"
#include "merge/linear_kernels.h"

namespace deltad {

inline const LinearKernels& fit_kernels() {
  static const LinearKernels& chosen =
      best_isa() == Isa::kScalar ? linear_kernels_plain() : linear_kernels_avx2();
  return chosen;
}

}  // namespace deltad
