// All that a kernel may use, when it is compiled for the CPU; kernels/cuda/device.h includes it.
#pragma once

#include "tests/support/cuda_on_cpu/builtins.h"
#include "tests/support/cuda_on_cpu/memory.h"
#include "tests/support/cuda_on_cpu/ptx.h"
