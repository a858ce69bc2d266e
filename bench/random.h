// Numbers that look random and are the same in every run, to fill what a benchmark works on.
#pragma once

#include <cstdint>

namespace deltad {

inline uint64_t next_random(uint64_t& state) {  // xorshift; state: not 0
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

}  // namespace deltad
