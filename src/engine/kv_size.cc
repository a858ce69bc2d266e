#include "engine/kv_size.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

namespace deltad {
namespace {

constexpr int64_t kAutomaticShare = 4;      // a quarter of the available memory
constexpr int64_t kAutomaticContexts = 64;  // of the longest length
constexpr int64_t kHostShare = 8;           // an eighth of the host's available memory
constexpr int64_t kUnknownMemory = int64_t{1} << 30;

}  // namespace

Result<KvSize> size_kv(const EngineOptions& options, int64_t max_positions, int64_t bytes_per_block,
                       int64_t available) {
  const int64_t tokens = options.block_tokens;
  if (options.max_context < 0 || options.max_context > max_positions)
    return invalid_argument(
        fmt::format("max_context is {}, expected 0 (automatic) to {}, the model's longest context",
                    options.max_context, max_positions));
  if (options.kv_bytes < 0)
    return invalid_argument(
        fmt::format("kv_bytes is {}, expected 0 (automatic) or more", options.kv_bytes));
  const int64_t longest = options.max_context > 0 ? options.max_context : max_positions;
  const int64_t blocks_of_longest = (longest + tokens - 1) / tokens;
  int64_t blocks = 0;
  if (options.kv_bytes > 0) {
    blocks = options.kv_bytes / bytes_per_block;
  } else {
    const int64_t budget = (available > 0 ? available : kUnknownMemory) / kAutomaticShare;
    blocks = std::min(budget / bytes_per_block, kAutomaticContexts * blocks_of_longest);
  }
  // Block numbers and token counts are 32 bits wide.
  blocks = std::min(blocks, std::numeric_limits<int32_t>::max() / tokens);
  if (blocks < 1)
    return invalid_argument(
        fmt::format("the KV cache has no room for one block of {} tokens: it may take {} bytes, a "
                    "block takes {}",
                    tokens, options.kv_bytes > 0 ? options.kv_bytes : available / kAutomaticShare,
                    bytes_per_block));
  if (options.max_context > blocks * tokens)
    return invalid_argument(
        fmt::format("max_context is {} tokens, but the KV cache holds only {}: it needs {} bytes",
                    options.max_context, blocks * tokens, blocks_of_longest * bytes_per_block));
  KvSize size;
  size.blocks = static_cast<int32_t>(blocks);
  size.max_context = static_cast<int32_t>(std::min(longest, blocks * tokens));
  if (size.max_context < 2)
    return invalid_argument(fmt::format("max_context is {}, expected at least 2", longest));
  return size;
}

int32_t host_kv_blocks(const EngineOptions& options, const KvGeometry& cache, int64_t available) {
  const int64_t block_bytes = cache.layers * cache.block_bytes;
  const int64_t blocks =
      options.kv_host_bytes == kAutomaticBytes
          ? std::min<int64_t>(cache.blocks, (available > 0 ? available : kUnknownMemory) /
                                                kHostShare / block_bytes)
          : options.kv_host_bytes / block_bytes;
  return static_cast<int32_t>(std::min<int64_t>(blocks, std::numeric_limits<int32_t>::max()));
}

}  // namespace deltad
