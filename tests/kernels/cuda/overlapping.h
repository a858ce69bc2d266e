// Launches as kernels of a step have them: started before the kernel before has ended.
#pragma once

#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {

inline emulator::Options overlapping(emulator::Options options) {
  options.overlaps_previous = true;
  return options;
}

// For the run() of a case: launches the kernel so, and leaves what was found in *report.
template <class Params>
auto launch_overlapping(void (*kernel)(Params), const emulator::Options& options,
                        emulator::Report* report) {
  return [kernel, options = overlapping(options), report](const char*, const Launch& shape,
                                                          const Params& p) {
    *report = emulator::launch(kernel, shape, p, options);
  };
}

}  // namespace deltad::cuda
