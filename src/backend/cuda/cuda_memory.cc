#include "backend/cuda/cuda_memory.h"

#include <fmt/core.h>

namespace deltad {

Result<DeviceMemory> DeviceMemory::make(CudaDevice& device, cudaStream_t stream, size_t bytes,
                                        const char* purpose) {
  DeviceMemory made;
  if (bytes == 0) return made;
  cudaError_t taken = cudaMallocAsync(&made.data_, bytes, stream);
  if (taken == cudaErrorMemoryAllocation && device.trim() == cudaSuccess)
    taken = cudaMallocAsync(&made.data_, bytes, stream);
  RETURN_IF_ERROR(device.check(taken, "cudaMallocAsync",
                               fmt::format("taking {} bytes for {}", bytes, purpose)));
  made.bytes_ = bytes;
  made.stream_ = stream;
  RETURN_IF_ERROR(CUDA_STATUS(device, cudaMemsetAsync(made.data_, 0, bytes, stream),
                              fmt::format("clearing {} bytes for {}", bytes, purpose)));
  return made;
}

Status DeviceMemory::grow(CudaDevice& device, cudaStream_t stream, size_t bytes,
                          const char* purpose) {
  if (bytes <= bytes_) return {};
  reset();  // first: there may be no room for both
  ASSIGN_OR_RETURN(*this, make(device, stream, bytes, purpose));
  return {};
}

void DeviceMemory::reset() {
  if (data_ != nullptr) cudaFreeAsync(data_, stream_);
  data_ = nullptr;
  bytes_ = 0;
}

Result<PinnedMemory> PinnedMemory::make(CudaDevice& device, size_t bytes, const char* purpose) {
  PinnedMemory made;
  RETURN_IF_ERROR(CUDA_STATUS(device, cudaHostAlloc(&made.data_, bytes, cudaHostAllocPortable),
                              fmt::format("taking {} pinned bytes for {}", bytes, purpose)));
  made.bytes_ = bytes;
  return made;
}

void PinnedMemory::reset() {
  if (data_ != nullptr) cudaFreeHost(data_);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace deltad
