// Host memory for the fake model's KV blocks.
#pragma once

#include <cstring>
#include <vector>

#include "backend/kv_swap.h"
#include "backend/ops.h"

namespace deltad::testing {

class FakeSwap final : public KvSwap {
 public:
  Status to_host(std::span<const KvBlockCopy> copies) override {
    for (const KvBlockCopy& c : copies) std::memcpy(host(c), device(c), size());
    blocks_out += static_cast<int64_t>(copies.size());
    return failure_out;
  }
  Status to_device(std::span<const KvBlockCopy> copies) override {
    if (!failure_in.ok() && failures_in-- > 0) {
      for (const KvBlockCopy& c : copies) std::memset(device(c), 0xff, size());
      return failure_in;
    }
    for (const KvBlockCopy& c : copies) std::memcpy(device(c), host(c), size());
    return {};
  }

  KvView kv{};  // one layer
  int32_t host_blocks = 0;
  int64_t blocks_out = 0;
  Status failure_out, failure_in;
  int failures_in = 1 << 20;  // so many times

 private:
  size_t size() const { return static_cast<size_t>(kv.block_bytes); }
  char* device(const KvBlockCopy& c) const {
    return static_cast<char*>(kv.data) + c.block * kv.block_bytes;
  }
  char* host(const KvBlockCopy& c) {
    host_.resize(static_cast<size_t>(host_blocks) * size());
    return host_.data() + static_cast<size_t>(c.host_block) * size();
  }
  std::vector<char> host_;
};

}  // namespace deltad::testing
