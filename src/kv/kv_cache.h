// KvCache: the paged keys and values of all sequences: one piece of memory, cut into blocks, with
// the accounting of who holds which (BlockPool) and what can be reused (PrefixIndex). Memory of
// blocks never taken is never touched. Owned by the engine; its thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/ops.h"
#include "kv/block_pool.h"
#include "kv/prefix_index.h"
#include "tensor/buffer.h"

namespace deltad {

struct KvGeometry {
  int64_t layers = 0;
  int32_t blocks = 0;
  int32_t block_tokens = 16;
  int64_t block_bytes = 0;  // of one layer, k and v together

  int64_t bytes() const { return layers * blocks * block_bytes; }
};

// Of memory that is taken up block by block; only advice.
void use_small_pages(const Buffer& memory);

class KvCache {
 public:
  // memory: at least geometry.bytes(), or none if whoever computes has it elsewhere.
  KvCache(Buffer memory, const KvGeometry& geometry, bool prefix_cache);
  KvCache(KvCache&&) = default;

  KvView view() const;
  int32_t block_tokens() const { return geometry_.block_tokens; }
  int32_t blocks() const { return geometry_.blocks; }
  int32_t blocks_for(int64_t tokens) const {
    return static_cast<int32_t>((tokens + block_tokens() - 1) / block_tokens());
  }
  const BlockPool& pool() const { return pool_; }
  bool prefix_cache() const { return prefix_cache_; }

  // A block with one reference: a free one, else the cached one that was released first, which is
  // then forgotten. −1 if every block is held.
  int32_t take();
  void retain(int32_t block) { pool_.retain(block); }
  // Gives back a sequence's blocks (or its last ones), the last first: of a cached prefix the tail
  // is reclaimed before what it hangs on.
  void release(std::span<const int32_t> blocks);

  // keys[i + 1] is the key of block i of tokens, keys[i] its parent's. The blocks that hold tokens
  // from block `first` on, without a gap, at most up to block `end`; no reference is taken.
  std::vector<int32_t> match(std::span<const BlockKey> keys, std::span<const int32_t> tokens,
                             int32_t first, int32_t end) const;
  // Block i of tokens is computed and lies in `block`: others may use it from now on.
  void publish(std::span<const BlockKey> keys, std::span<const int32_t> tokens, int32_t i,
               int32_t block);

 private:
  std::span<const int32_t> block_of(std::span<const int32_t> tokens, int32_t i) const;

  Buffer memory_;
  KvGeometry geometry_;
  bool prefix_cache_;
  BlockPool pool_;
  PrefixIndex index_;
};

}  // namespace deltad
