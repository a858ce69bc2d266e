// Buffer: owns a piece of memory on a device; move-only. CPU memory is 64-byte aligned, huge pages
// where large, zero-filled by the system. A device allocator hands in its own way to free.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "tensor/tensor_view.h"

namespace deltad {

class Buffer {
 public:
  using Free = void (*)(void* data, size_t bytes);

  Buffer() = default;
  Buffer(void* data, size_t bytes, DeviceKind device, Free free)
      : data_(data), bytes_(bytes), device_(device), free_(free) {}
  ~Buffer() { reset(); }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      reset();
      swap(other);
    }
    return *this;
  }

  // Zero-filled CPU memory; kResourceExhausted with the size if the system has none.
  static Result<Buffer> cpu(size_t bytes);

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  DeviceKind device() const { return device_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void reset();
  void swap(Buffer& other);
  void* data_ = nullptr;
  size_t bytes_ = 0;
  DeviceKind device_ = DeviceKind::kCpu;
  Free free_ = nullptr;
};

}  // namespace deltad
