// Seams: what lies across two pieces that different threads read, put together from both sides.
// Whoever brings the last bytes of a unit gets the whole. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace deltad {

class Seams {
 public:
  // Bytes [offset, offset + bytes) of unit `unit` of tensor `tensor`, which has unit_bytes in all.
  // Each byte is brought once. Empty until the unit is whole.
  std::vector<uint8_t> add(int32_t tensor, int64_t unit, int64_t unit_bytes, int64_t offset,
                           const uint8_t* data, int64_t bytes);

 private:
  struct Open {
    std::vector<uint8_t> content;
    int64_t have = 0;
  };
  Mutex mutex_;
  std::map<std::pair<int32_t, int64_t>, Open> open_ GUARDED_BY(mutex_);
};

}  // namespace deltad
