// How many KV blocks the engine has and how long a context may get, from its options, the model and
// the machine. Pure arithmetic, at start.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "engine/engine.h"
#include "kv/kv_cache.h"

namespace deltad {

struct KvSize {
  int32_t blocks = 0;
  int32_t max_context = 0;
};

// bytes_per_block: of all layers. available: memory that the process may still use; 0 if unknown.
// options.kv_bytes 0: a quarter of what is available, at most enough for 64 contexts of the longest
// length. Memory is only taken from the system as blocks are first used.
Result<KvSize> size_kv(const EngineOptions& options, int64_t max_positions, int64_t bytes_per_block,
                       int64_t available);

// Blocks of host memory for preempted sequences. available: as above, of the host. Automatic: as
// many as the cache has, in an eighth of that.
int32_t host_kv_blocks(const EngineOptions& options, const KvGeometry& cache, int64_t available);

}  // namespace deltad
