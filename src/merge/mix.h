// Random bits by their place: splitmix64's finalizer over a seed and an index, so that any
// element's bits can be had in any order, by any thread, and by another implementation.
#pragma once

#include <cstdint>

namespace deltad {

inline uint64_t mix(uint64_t seed, uint64_t index) {
  uint64_t z = seed + 0x9e3779b97f4a7c15u * (index + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// [0, 1), from the upper 53 bits
inline double unit_interval(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

}  // namespace deltad
