// How wgmma finds an operand in shared memory: its descriptor, for rows (of B: outputs' or tokens')
// along whose k the elements lie next to each other.
//
// Without swizzle, 8 rows × 16 bytes are a core matrix of 128 bytes in a piece; the next 16 bytes
// of k are leading_bytes further, the next 8 rows stride_bytes. With a swizzle of S bytes (32, 64,
// 128), rows are S bytes apart, 8 rows a group, groups stride_bytes apart; 16-byte units of a row
// change places by the row's number: bits 4… of the address are flipped by bits 7… of it.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace deltad::cuda {

enum class WgmmaSwizzle : uint32_t { kNone = 0, k128 = 1, k64 = 2, k32 = 3 };

// start: a shared memory address, a multiple of 16.
DELTAD_HOST_DEVICE constexpr uint64_t wgmma_descriptor_of(uint32_t start, uint32_t leading_bytes,
                                                          uint32_t stride_bytes,
                                                          WgmmaSwizzle swizzle) {
  return (start & 0x3ffff) >> 4 | static_cast<uint64_t>(leading_bytes >> 4) << 16 |
         static_cast<uint64_t>(stride_bytes >> 4) << 32 | static_cast<uint64_t>(swizzle) << 62;
}

}  // namespace deltad::cuda
