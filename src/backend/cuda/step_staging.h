// StepStaging: what the host tells the device about a step, in one copy. Tables are gathered, go
// into one of two pieces of pinned memory (the other one's copy may still run) and from there to
// one place on the device, in the order of the stream of steps. Owned by CudaOps, which lives until
// that stream is done; the engine's thread.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "backend/cuda/cuda_memory.h"

namespace deltad {

class StepStaging {
 public:
  explicit StepStaging(CudaDevice& device) : device_(device) {}
  ~StepStaging();
  StepStaging(const StepStaging&) = delete;

  void clear() { gathered_.clear(); }
  // Where on the device the values will be, once sent.
  template <typename T>
  size_t add(std::span<const T> values) {
    return add_bytes(values.data(), values.size_bytes());
  }
  Status send();
  template <typename T>
  const T* at(size_t place) const {
    return device_memory_.at<const T>(place);
  }
  size_t device_bytes() const { return device_memory_.bytes(); }

 private:
  static constexpr size_t kPieces = 2;
  static constexpr size_t kAlignment = 16;
  size_t add_bytes(const void* values, size_t bytes);
  Status make_room(size_t bytes);

  CudaDevice& device_;
  std::vector<std::byte> gathered_;
  std::array<PinnedMemory, kPieces> pinned_;
  // Kept: to give pinned memory back may wait for the GPUs, of which a rank's may hang. By what it
  // grows, that is at most twice what is used.
  std::vector<PinnedMemory> outgrown_;
  std::array<cudaEvent_t, kPieces> copied_{};
  size_t next_ = 0;
  DeviceMemory device_memory_;
};

}  // namespace deltad
