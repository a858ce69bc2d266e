// BlockLedger: the block counts as they will be when the plan so far is carried out. Lives within
// one plan_step.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include "kv/block_pool.h"

namespace deltad {

class BlockLedger {
 public:
  explicit BlockLedger(const BlockPool& pool) : pool_(pool), available_(pool.available()) {}

  int32_t available() const { return available_; }
  bool take(int32_t blocks) {
    if (blocks > available_) return false;
    available_ -= blocks;
    return true;
  }
  void give(int32_t blocks) { available_ += blocks; }  // the opposite of take
  void retain(std::span<const int32_t> blocks) {
    for (const int32_t block : blocks)
      if (change(block, +1) == 1) --available_;
  }
  void release(std::span<const int32_t> blocks) {
    for (const int32_t block : blocks)
      if (change(block, -1) == 0) ++available_;
  }

 private:
  // The references after the change.
  int32_t change(int32_t block, int32_t by) { return pool_.refs(block) + (change_[block] += by); }

  const BlockPool& pool_;
  int32_t available_;
  std::unordered_map<int32_t, int32_t> change_;
};

}  // namespace deltad
