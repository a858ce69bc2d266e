// BlockPool: which KV blocks are free, held by sequences, or kept for a later request with the same
// prefix. Owned by KvCache; the engine's thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace deltad {

class BlockPool {
 public:
  explicit BlockPool(int32_t blocks);

  int32_t size() const { return static_cast<int32_t>(refs_.size()); }
  int32_t free() const { return static_cast<int32_t>(free_.size()); }
  int32_t cached() const { return cached_; }  // held by nobody, but kept
  int32_t used() const { return size() - free() - cached(); }
  int32_t available() const { return free() + cached(); }  // what can be taken
  int32_t refs(int32_t block) const { return refs_[static_cast<size_t>(block)]; }

  // A free block, now with one reference; −1 if there is none (cached ones are not touched). The
  // block given back last comes first, then the lowest, so memory never used stays untouched.
  int32_t take_free();
  // One more reference; a cached block is cached no longer.
  void retain(int32_t block);
  // One reference less. The last one makes the block the newest cached one (keep) or free.
  void release(int32_t block, bool keep);
  // The cached block that was released first; −1 if none.
  int32_t oldest_cached() const;
  // Cached → free.
  void drop_cached(int32_t block);

 private:
  void unlink(int32_t block);

  struct Link {
    int32_t previous, next;
  };
  std::vector<int32_t> refs_;
  std::vector<int32_t> free_;  // a stack
  std::vector<Link> links_;    // ring of the cached blocks; index size() is its head
  std::vector<bool> is_cached_;
  int32_t cached_ = 0;
};

}  // namespace deltad
