#include "kv/block_pool.h"

#include "base/check.h"

namespace deltad {

BlockPool::BlockPool(int32_t blocks)
    : refs_(static_cast<size_t>(blocks), 0),
      links_(static_cast<size_t>(blocks) + 1),
      is_cached_(static_cast<size_t>(blocks), false) {
  free_.reserve(static_cast<size_t>(blocks));
  for (int32_t b = blocks - 1; b >= 0; --b) free_.push_back(b);
  links_[static_cast<size_t>(blocks)] = {blocks, blocks};
}

int32_t BlockPool::take_free() {
  if (free_.empty()) return -1;
  const int32_t block = free_.back();
  free_.pop_back();
  refs_[static_cast<size_t>(block)] = 1;
  return block;
}

void BlockPool::retain(int32_t block) {
  const auto b = static_cast<size_t>(block);
  CHECK(refs_[b] > 0 || is_cached_[b], "retain of a free block");
  if (is_cached_[b]) unlink(block);
  ++refs_[b];
}

void BlockPool::release(int32_t block, bool keep) {
  const auto b = static_cast<size_t>(block);
  CHECK(refs_[b] > 0, "release of a block that nobody holds");
  if (--refs_[b] > 0) return;
  if (!keep) {
    free_.push_back(block);
    return;
  }
  const auto head = refs_.size();
  const int32_t last = links_[head].previous;
  links_[b] = {last, static_cast<int32_t>(head)};
  links_[static_cast<size_t>(last)].next = block;
  links_[head].previous = block;
  is_cached_[b] = true;
  ++cached_;
}

int32_t BlockPool::oldest_cached() const { return cached_ == 0 ? -1 : links_[refs_.size()].next; }

void BlockPool::drop_cached(int32_t block) {
  CHECK(is_cached_[static_cast<size_t>(block)], "drop of a block that is not cached");
  unlink(block);
  free_.push_back(block);
}

void BlockPool::unlink(int32_t block) {
  const Link link = links_[static_cast<size_t>(block)];
  links_[static_cast<size_t>(link.previous)].next = link.next;
  links_[static_cast<size_t>(link.next)].previous = link.previous;
  is_cached_[static_cast<size_t>(block)] = false;
  --cached_;
}

}  // namespace deltad
