// Launches as kernels of a step have them: started before the kernel before has ended.
#pragma once

#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {

inline emulator::Options overlapping(emulator::Options options) {
  options.overlaps_previous = true;
  return options;
}

}  // namespace deltad::cuda
