// Owners of memory: DeviceMemory on the GPU, taken and given back in the order of a stream;
// PinnedMemory of the host, which copies read and write directly. Move-only; used by whoever owns
// them.
#pragma once

#include <cstddef>
#include <utility>

#include "backend/cuda/cuda_device.h"

namespace deltad {

class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory() { reset(); }
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    if (this != &other) {
      reset();
      swap(other);
    }
    return *this;
  }

  // Zeros, to be used on `stream`, or elsewhere by what is ordered after it. `purpose` is for
  // the error: "taking 5 bytes for PURPOSE".
  static Result<DeviceMemory> make(CudaDevice& device, cudaStream_t stream, size_t bytes,
                                   const char* purpose);
  // At least `bytes`, the content lost (zeros) where it has to grow.
  Status grow(CudaDevice& device, cudaStream_t stream, size_t bytes, const char* purpose);

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  // At a place in it.
  template <typename T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(static_cast<char*>(data_) + offset);
  }

 private:
  void reset();
  void swap(DeviceMemory& other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(stream_, other.stream_);
  }
  void* data_ = nullptr;
  size_t bytes_ = 0;
  cudaStream_t stream_ = nullptr;
};

class PinnedMemory {
 public:
  PinnedMemory() = default;
  ~PinnedMemory() { reset(); }
  PinnedMemory(PinnedMemory&& other) noexcept { swap(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    if (this != &other) {
      reset();
      swap(other);
    }
    return *this;
  }

  static Result<PinnedMemory> make(CudaDevice& device, size_t bytes, const char* purpose);

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(static_cast<char*>(data_) + offset);
  }

 private:
  void reset();
  void swap(PinnedMemory& other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace deltad
