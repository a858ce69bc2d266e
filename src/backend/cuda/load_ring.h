// LoadRing: how weights come to the device: through a few pieces of pinned memory, each with as
// much on the device for what is repacked there. Shared by the loader threads; all copies and
// kernels run on the device's load stream, in the order in which they are given, and no step waits
// for them. A piece is used again when the stream has passed its event. No wait is without end
// (CudaDevice::await). Owned by CudaBackend, which waits for the stream before it ends.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "backend/cuda/cuda_memory.h"
#include "base/mutex.h"

namespace deltad {

class LoadRing {
 public:
  static constexpr size_t kPieceBytes = size_t{2} << 20;

  static Result<std::unique_ptr<LoadRing>> make(CudaDevice& device);
  LoadRing(const LoadRing&) = delete;

  struct Copy {
    const void* pinned;  // the piece's, filled
    void* staging;       // the piece's on the device
    cudaStream_t stream;
  };
  // One piece's way: waits until one is free, `fill`s its kPieceBytes of pinned memory, and gives
  // `order` the work to put on the stream, in the order of the calls. fill runs on many threads at
  // once, order on one at a time.
  Status pass(const std::function<void(void* pinned)>& fill,
              const std::function<Status(const Copy&)>& order);
  // Copies from ordinary memory, in pieces.
  Status copy(void* to, const void* from, size_t bytes);
  // The other way, after what was ordered before; returns when it is there.
  Status fetch(void* to, const void* from, size_t bytes);
  // Returns when all that was ordered before is done.
  Status wait();

  size_t device_bytes() const { return staging_.bytes(); }

 private:
  explicit LoadRing(CudaDevice& device) : device_(device) {}
  Result<size_t> take();
  Status mark(size_t piece);
  std::byte* pinned(size_t piece) const { return pinned_.at<std::byte>(piece * kPieceBytes); }
  void give_back(size_t piece);

  CudaDevice& device_;
  PinnedMemory pinned_;
  DeviceMemory staging_;
  std::vector<CudaEvent> passed_;  // by piece; recorded after its last work
  Mutex mutex_;
  CondVar freed_;
  std::deque<size_t> free_ GUARDED_BY(mutex_);
  Mutex order_;  // held while one piece's work is put on the stream
};

}  // namespace deltad
