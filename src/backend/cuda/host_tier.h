// HostTier: copies of variants between the device and pinned memory of the host: out on a stream of
// its own, which no step and no load waits for; back on the stream of loads. What is copied out is
// constant, so steps may use it meanwhile; whoever gives it back has waited for the copy. Owned by
// CudaBackend; loader threads.
#pragma once

#include <atomic>
#include <memory>

#include "backend/cuda/host_pool.h"

namespace deltad {

class HostTier {
 public:
  static Result<std::unique_ptr<HostTier>> make(CudaDevice& device, std::shared_ptr<HostPool> pool);
  ~HostTier();
  HostTier(const HostTier&) = delete;

  // Adds so much to the pool, in whole pages; how much that was.
  Result<size_t> reserve(size_t bytes);
  // A copy of finished memory. Returns when it is there.
  Result<HostPool::Pieces> copy_out(const DeviceMemory& from);
  // Back into as much memory that was taken in the order of the load stream. cancelled: polled;
  // kCancelled. Only orders: the caller waits for the load stream, after an error too, before
  // `from` may go.
  Status copy_back(const DeviceMemory& to, const HostPool::Pieces& from,
                   const std::atomic<bool>& cancelled);

 private:
  HostTier(CudaDevice& device, std::shared_ptr<HostPool> pool)
      : device_(device), pool_(std::move(pool)) {}
  Status order_out(const DeviceMemory& from, const HostPool::Pieces& to);

  CudaDevice& device_;
  const std::shared_ptr<HostPool> pool_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace deltad
