// PrefixIndex: finds the KV block that already holds given tokens after given tokens of a given
// variant. A key is the XXH3-128 of the parent block's key and the block's tokens; the root's is
// that of the variant's digest, so blocks of two variants, or of two versions under one name, never
// meet. Where generated rows have other bits than rows of prompts, a key also says how many of the
// block's last rows were generated (so do its parents' keys), and only an equal split matches.
// Owned by KvCache; the engine's thread only.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace deltad {

struct BlockKey {
  uint64_t low = 0, high = 0;
  uint64_t generated = 0;  // the block's last rows that count as generated
  bool operator==(const BlockKey&) const = default;
};
struct BlockKeyHash {
  size_t operator()(const BlockKey& key) const { return static_cast<size_t>(key.low); }
};

// The parent of a variant's first blocks; "" is the base.
BlockKey root_key(std::string_view variant_digest);
BlockKey chain_key(const BlockKey& parent, std::span<const int32_t> tokens, int32_t generated = 0);

class PrefixIndex {
 public:
  PrefixIndex(int32_t blocks, int32_t block_tokens);

  // −1 if not there. Parent and tokens are compared too: two texts with one hash are no match.
  int32_t find(const BlockKey& key, const BlockKey& parent, std::span<const int32_t> tokens) const;
  // False, and nothing changes, if the key is there already.
  bool insert(const BlockKey& key, const BlockKey& parent, std::span<const int32_t> tokens,
              int32_t block);
  bool holds(int32_t block) const { return entries_[static_cast<size_t>(block)].held; }
  void erase(int32_t block);
  int32_t size() const { return static_cast<int32_t>(by_key_.size()); }

 private:
  struct Entry {
    BlockKey key, parent;
    bool held = false;
  };
  const int32_t block_tokens_;
  std::unordered_map<BlockKey, int32_t, BlockKeyHash> by_key_;
  std::vector<Entry> entries_;   // index: block
  std::vector<int32_t> tokens_;  // [blocks, block_tokens]
};

}  // namespace deltad
