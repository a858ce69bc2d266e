// ParallelKvSwap: preempted sequences' blocks of a cache that ranks share: each rank copies its
// part of the same blocks, to the same places of its own host memory. Owned by the engine's runner;
// its thread.
#pragma once

#include <fmt/core.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/kv_swap.h"

namespace deltad {

class ParallelKvSwap final : public KvSwap {
 public:
  // Of each rank, in order.
  explicit ParallelKvSwap(std::vector<std::unique_ptr<KvSwap>> ranks) : ranks_(std::move(ranks)) {}

  // The error names the rank; what other ranks have copied is worth nothing then.
  Status to_host(std::span<const KvBlockCopy> copies) override {
    return on_all([&](KvSwap& rank) { return rank.to_host(copies); });
  }
  Status to_device(std::span<const KvBlockCopy> copies) override {
    return on_all([&](KvSwap& rank) { return rank.to_device(copies); });
  }

 private:
  template <class Copy>
  Status on_all(const Copy& copy) {
    for (size_t r = 0; r < ranks_.size(); ++r)
      RETURN_IF_ERROR(copy(*ranks_[r]).in(fmt::format("rank {} of {}", r, ranks_.size())));
    return {};
  }

  const std::vector<std::unique_ptr<KvSwap>> ranks_;
};

}  // namespace deltad
