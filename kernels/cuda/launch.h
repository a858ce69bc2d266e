// How a kernel is launched, in plain C++: computed beside each kernel from its parameters, used by
// the backend and by the tests.
#pragma once

#include <cstdint>

// For functions that both sides call.
#if defined(__CUDACC__)
#define DELTAD_HOST_DEVICE __host__ __device__
#else
#define DELTAD_HOST_DEVICE
#endif

namespace deltad::cuda {

struct Extent {
  uint32_t x = 1, y = 1, z = 1;
};

struct Launch {
  Extent grid, block;
  uint32_t shared_bytes = 0;  // dynamic shared memory
  // Blocks that run at the same time and reach each other's shared memory (sm_90 and later); the
  // grid is a multiple of it.
  Extent cluster = {};
};

constexpr uint32_t kMostClusterBlocks = 8;  // on every device with clusters

}  // namespace deltad::cuda
