// Device code: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, 2011), as the CPU's sampler uses it.
#pragma once

#include "kernels/cuda/device.h"

namespace deltad::cuda {

// A fraction of 2^64: 53 random bits of (seed, choice, position), then zeros.
DELTAD_DEVICE uint64_t philox_fraction(uint64_t seed, uint32_t choice, uint64_t position) {
  uint32_t c0 = static_cast<uint32_t>(position), c1 = static_cast<uint32_t>(position >> 32);
  uint32_t c2 = choice, c3 = 0;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c0, b = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(b);
    c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return (static_cast<uint64_t>(c0) << 32 | c1) >> 11 << 11;
}

}  // namespace deltad::cuda
