// The toolkit's side of toolkit_test.cc: its own headers. Nothing here is linked with CUDA.
#include <cublasLt.h>
#include <nccl.h>

#include "tests/support/cuda_on_cpu/runtime/tests/toolkit_table.h"

namespace deltad::emulated_gpu {

Names libraries_of_toolkit() {
  Names names;
#include "toolkit_libraries.inc"
  return names;
}

}  // namespace deltad::emulated_gpu
