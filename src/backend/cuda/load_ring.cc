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
    cudaEvent_t event = nullptr;
    // Loaders wait asleep: they would take the cores of those that read and unpack.
    RETURN_IF_ERROR(CUDA_STATUS(
        device, cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
        "making an event of the staging of loads"));
    ring->passed_.push_back(event);
    ring->free_.push_back(i);
  }
  return ring;
}

LoadRing::~LoadRing() {
  for (cudaEvent_t event : passed_) cudaEventDestroy(event);
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
  const Status status = CUDA_STATUS(device_, cudaEventSynchronize(passed_[piece]),
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

Status LoadRing::pass(const std::function<void(void* pinned)>& fill,
                      const std::function<Status(const Copy&)>& order) {
  RETURN_IF_ERROR(device_.use());
  ASSIGN_OR_RETURN(const size_t piece, take());
  char* pinned = static_cast<char*>(pinned_.data()) + piece * kPieceBytes;
  fill(pinned);
  Status status;
  {
    MutexLock lock(order_);
    status = order({pinned, staging_.at<void>(piece * kPieceBytes), device_.load()});
    const Status marked = CUDA_STATUS(device_, cudaEventRecord(passed_[piece], device_.load()),
                                      "marking a piece of the staging of loads");
    // Without its event nobody could tell when the piece is free.
    if (!marked.ok()) (void)cudaStreamSynchronize(device_.load());
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

Status LoadRing::wait() {
  RETURN_IF_ERROR(device_.use());
  return CUDA_STATUS(device_, cudaStreamSynchronize(device_.load()), "waiting for a load");
}

}  // namespace deltad
