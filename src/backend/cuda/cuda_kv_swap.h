// CudaKvSwap: preempted sequences' blocks in pinned memory, copied on a stream of their own: behind
// the steps that were ordered, and before those that come. Owned by the engine's runner; its
// thread.
#pragma once

#include <memory>

#include "backend/cuda/cuda_memory.h"
#include "backend/kv_swap.h"
#include "backend/ops.h"

namespace deltad {

class CudaKvSwap final : public KvSwap {
 public:
  static Result<std::unique_ptr<CudaKvSwap>> make(CudaDevice& device, const KvView& kv,
                                                  int64_t layers, int32_t host_blocks);
  ~CudaKvSwap() override;
  Status to_host(std::span<const KvBlockCopy> copies) override {
    return copy(copies, cudaMemcpyDeviceToHost);
  }
  Status to_device(std::span<const KvBlockCopy> copies) override {
    return copy(copies, cudaMemcpyHostToDevice);
  }

 private:
  CudaKvSwap(CudaDevice& device, const KvView& kv, int64_t layers)
      : device_(device), kv_(kv), layers_(layers) {}
  Status copy(std::span<const KvBlockCopy> copies, cudaMemcpyKind kind);
  Status order(std::span<const KvBlockCopy> copies, cudaMemcpyKind kind);

  CudaDevice& device_;
  const KvView kv_;
  const int64_t layers_;
  int most_pitch_ = 0;  // of the device
  PinnedMemory host_;   // [host blocks][layers] block_bytes
  cudaStream_t stream_ = nullptr;
  cudaEvent_t copied_ = nullptr;
};

}  // namespace deltad
