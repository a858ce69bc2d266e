#include "kv/prefix_index.h"

#define XXH_STATIC_LINKING_ONLY  // states on the stack
#include <xxhash.h>

#include <algorithm>

#include "base/check.h"

namespace deltad {
namespace {

// Two kinds of input never share a hash state, so that no digest looks like a block.
constexpr uint64_t kRootSeed = 1, kBlockSeed = 2;

BlockKey key_of(XXH128_hash_t hash, uint64_t generated = 0) {
  return {hash.low64, hash.high64, generated};
}

}  // namespace

BlockKey root_key(std::string_view variant_digest) {
  return key_of(XXH3_128bits_withSeed(variant_digest.data(), variant_digest.size(), kRootSeed));
}

BlockKey chain_key(const BlockKey& parent, std::span<const int32_t> tokens, int32_t generated) {
  XXH3_state_t state;
  XXH3_128bits_reset_withSeed(&state, kBlockSeed);
  XXH3_128bits_update(&state, &parent, sizeof parent);
  XXH3_128bits_update(&state, tokens.data(), tokens.size_bytes());
  return key_of(XXH3_128bits_digest(&state), static_cast<uint64_t>(generated));
}

PrefixIndex::PrefixIndex(int32_t blocks, int32_t block_tokens)
    : block_tokens_(block_tokens),
      entries_(static_cast<size_t>(blocks)),
      tokens_(static_cast<size_t>(blocks) * static_cast<size_t>(block_tokens)) {}

int32_t PrefixIndex::find(const BlockKey& key, const BlockKey& parent,
                          std::span<const int32_t> tokens) const {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return -1;
  const int32_t block = found->second;
  const int32_t* held = tokens_.data() + static_cast<size_t>(block) * tokens.size();
  const bool same = entries_[static_cast<size_t>(block)].parent == parent &&
                    std::equal(tokens.begin(), tokens.end(), held);
  return same ? block : -1;
}

bool PrefixIndex::insert(const BlockKey& key, const BlockKey& parent,
                         std::span<const int32_t> tokens, int32_t block) {
  CHECK(tokens.size() == static_cast<size_t>(block_tokens_), "only full blocks are indexed");
  CHECK(!holds(block), "the block is indexed under another key");
  if (!by_key_.emplace(key, block).second) return false;
  entries_[static_cast<size_t>(block)] = {key, parent, true};
  std::copy(tokens.begin(), tokens.end(),
            tokens_.begin() + static_cast<std::ptrdiff_t>(block) * block_tokens_);
  return true;
}

void PrefixIndex::erase(int32_t block) {
  Entry& entry = entries_[static_cast<size_t>(block)];
  CHECK(entry.held, "the block is not indexed");
  by_key_.erase(entry.key);
  entry.held = false;
}

}  // namespace deltad
