#include "kv/kv_cache.h"

#include <sys/mman.h>

#include <utility>

#include "base/check.h"

namespace deltad {

// With huge pages the first block would make 2 MiB of every layer resident.
void use_small_pages(const Buffer& memory) {
  constexpr size_t kMapped = size_t{1} << 21;
  if (memory.device() == DeviceKind::kCpu && memory.bytes() >= kMapped)
    madvise(memory.data(), memory.bytes(), MADV_NOHUGEPAGE);
}

KvCache::KvCache(Buffer memory, const KvGeometry& geometry, bool prefix_cache)
    : memory_(std::move(memory)),
      geometry_(geometry),
      prefix_cache_(prefix_cache),
      pool_(geometry.blocks),
      index_(prefix_cache ? geometry.blocks : 0, geometry.block_tokens) {
  CHECK(!memory_ || static_cast<int64_t>(memory_.bytes()) >= geometry.bytes(),
        "KV memory is too small");
  use_small_pages(memory_);
}

KvView KvCache::view() const {
  return {memory_.data(), geometry_.blocks, geometry_.block_tokens, geometry_.block_bytes};
}

int32_t KvCache::take() {
  if (pool_.free() == 0) {
    const int32_t oldest = pool_.oldest_cached();
    if (oldest < 0) return -1;
    index_.erase(oldest);
    pool_.drop_cached(oldest);
  }
  return pool_.take_free();
}

void KvCache::release(std::span<const int32_t> blocks) {
  for (size_t i = blocks.size(); i-- > 0;)
    pool_.release(blocks[i], prefix_cache_ && index_.holds(blocks[i]));
}

std::vector<int32_t> KvCache::match(std::span<const BlockKey> keys, std::span<const int32_t> tokens,
                                    int32_t first, int32_t end) const {
  std::vector<int32_t> found;
  if (!prefix_cache_) return found;
  for (int32_t i = first; i < end; ++i) {
    const auto at = static_cast<size_t>(i);
    const int32_t block = index_.find(keys[at + 1], keys[at], block_of(tokens, i));
    if (block < 0) break;
    found.push_back(block);
  }
  return found;
}

void KvCache::publish(std::span<const BlockKey> keys, std::span<const int32_t> tokens, int32_t i,
                      int32_t block) {
  if (!prefix_cache_ || index_.holds(block)) return;
  // A second block with the same content stays its sequence's own and is freed with it.
  const auto at = static_cast<size_t>(i);
  index_.insert(keys[at + 1], keys[at], block_of(tokens, i), block);
}

std::span<const int32_t> KvCache::block_of(std::span<const int32_t> tokens, int32_t i) const {
  const auto size = static_cast<size_t>(block_tokens());
  return tokens.subspan(static_cast<size_t>(i) * size, size);
}

}  // namespace deltad
