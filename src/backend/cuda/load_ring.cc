#include "backend/cuda/load_ring.h"

#include <algorithm>
#include <cstring>

namespace deltad {
namespace {

constexpr size_t kPieces = 8;  // four readers of the base, each with one under way

}  // namespace

Result<std::unique_ptr<LoadRing>> LoadRing::make(CudaDevice& device) {
  std::unique_ptr<LoadRing> ring(new LoadRing(device));
  ASSIGN_OR_RETURN(ring->pinned_,
                   PinnedMemory::make(device, kPieces * kPieceBytes, "the staging of loads"));
  ASSIGN_OR_RETURN(ring->staging_, DeviceMemory::make(device, device.load(), kPieces * kPieceBytes,
                                                      "the staging of loads"));
  MutexLock lock(ring->mutex_);
  for (size_t i = 0; i < kPieces; ++i) {
    ASSIGN_OR_RETURN(CudaEvent event, CudaEvent::make(device));
    ring->passed_.push_back(std::move(event));
    ring->free_.push_back(i);
  }
  return ring;
}

// The piece that was given back first.
Result<size_t> LoadRing::take() {
  size_t piece = 0;
  {
    MutexLock lock(mutex_);
    while (free_.empty()) freed_.wait(mutex_);
    piece = free_.front();
    free_.pop_front();
  }
  const Status status =
      device_.await([&] { return cudaEventQuery(passed_[piece].get()); }, "cudaEventQuery",
                    "waiting for a piece of the staging of loads");
  if (!status.ok()) {
    give_back(piece);
    return status;
  }
  return piece;
}

void LoadRing::give_back(size_t piece) {
  MutexLock lock(mutex_);
  free_.push_back(piece);
  freed_.notify_one();
}

// Its last work is what was ordered last.
Status LoadRing::mark(size_t piece) {
  const Status marked = CUDA_STATUS(device_, cudaEventRecord(passed_[piece].get(), device_.load()),
                                    "marking a piece of the staging of loads");
  // Without its event nobody could tell when the piece is free.
  if (!marked.ok())
    (void)device_.await([&] { return cudaStreamQuery(device_.load()); }, "cudaStreamQuery",
                        "waiting for a load");
  return marked;
}

Status LoadRing::pass(const std::function<void(void* pinned)>& fill,
                      const std::function<Status(const Copy&)>& order) {
  RETURN_IF_ERROR(device_.use());
  ASSIGN_OR_RETURN(const size_t piece, take());
  fill(pinned(piece));
  Status status;
  {
    MutexLock lock(order_);
    status = order({pinned(piece), staging_.at<void>(piece * kPieceBytes), device_.load()});
    const Status marked = mark(piece);
    if (status.ok()) status = marked;
  }
  give_back(piece);
  return status;
}

Status LoadRing::copy(void* to, const void* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    const size_t n = std::min(kPieceBytes, bytes - at);
    RETURN_IF_ERROR(
        pass([&](void* pinned) { std::memcpy(pinned, static_cast<const char*>(from) + at, n); },
             [&](const Copy& piece) {
               return CUDA_STATUS(device_,
                                  cudaMemcpyAsync(static_cast<char*>(to) + at, piece.pinned, n,
                                                  cudaMemcpyHostToDevice, piece.stream),
                                  "copying to the device");
             }));
  }
  return {};
}

Status LoadRing::fetch(void* to, const void* from, size_t bytes) {
  RETURN_IF_ERROR(device_.use());
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    const size_t n = std::min(kPieceBytes, bytes - at);
    ASSIGN_OR_RETURN(const size_t piece, take());
    Status status;
    {
      MutexLock lock(order_);
      status = CUDA_STATUS(device_,
                           cudaMemcpyAsync(pinned(piece), static_cast<const char*>(from) + at, n,
                                           cudaMemcpyDeviceToHost, device_.load()),
                           "copying to the host");
      const Status marked = mark(piece);
      if (status.ok()) status = marked;
    }
    if (status.ok())
      status = device_.await([&] { return cudaEventQuery(passed_[piece].get()); }, "cudaEventQuery",
                             "waiting for a copy to the host");
    if (status.ok()) std::memcpy(static_cast<char*>(to) + at, pinned(piece), n);
    give_back(piece);
    RETURN_IF_ERROR(status);
  }
  return {};
}

// Not for the stream itself: others' loads go on there.
Status LoadRing::wait() {
  constexpr char kPurpose[] = "waiting for a load";
  RETURN_IF_ERROR(device_.use());
  ASSIGN_OR_RETURN(const CudaEvent end, CudaEvent::make(device_));
  RETURN_IF_ERROR(CUDA_STATUS(device_, cudaEventRecord(end.get(), device_.load()), kPurpose));
  return device_.await([&] { return cudaEventQuery(end.get()); }, "cudaEventQuery", kPurpose);
}

}  // namespace deltad
