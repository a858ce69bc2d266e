// KvSwap: host memory for blocks of a KV cache that lies on a device, so that a preempted sequence
// gets back what it had. Made by a backend for a cache; whoever uses it decides which block lies
// where. Owned by the engine's runner; the engine's thread, between two steps.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"

namespace deltad {

// A block of all layers.
struct KvBlockCopy {
  int32_t block;       // of the cache
  int32_t host_block;  // of the host memory
};

class KvSwap {
 public:
  virtual ~KvSwap() = default;
  // Copies see what the steps before have written, in the order of the calls; the next step sees
  // what they did, and may write to blocks that they read. Returns before they are done. After an
  // error what the call was to write to is undefined; copies and steps that come may write to it.
  virtual Status to_host(std::span<const KvBlockCopy> copies) = 0;
  virtual Status to_device(std::span<const KvBlockCopy> copies) = 0;
};

}  // namespace deltad
