// The toolkit's side of toolkit_test.cc: its own header. Nothing here is linked with CUDA.
#include <cuda_runtime_api.h>

#include "tests/support/cuda_on_cpu/runtime/tests/toolkit_table.h"

namespace deltad::emulated_gpu {

Names runtime_of_toolkit() {
  Names names;
#include "toolkit_runtime.inc"
  return names;
}

}  // namespace deltad::emulated_gpu
