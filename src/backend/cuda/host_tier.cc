#include "backend/cuda/host_tier.h"

#include <algorithm>
#include <array>

namespace deltad {
namespace {

// Of a copy back, ordered at once: a load of another variant waits for so much at most, half a
// millisecond, and so does one who gives this one up.
constexpr size_t kStretch = size_t{32} << 20;

constexpr size_t kPage = 4096;

constexpr char kOut[] = "copying a variant to the host";
constexpr char kBack[] = "copying a variant back from the host";

}  // namespace

Result<std::unique_ptr<HostTier>> HostTier::make(CudaDevice& device,
                                                 std::shared_ptr<HostPool> pool) {
  std::unique_ptr<HostTier> made(new HostTier(device, std::move(pool)));
  RETURN_IF_ERROR(
      CUDA_STATUS(device, cudaStreamCreateWithPriority(&made->stream_, cudaStreamNonBlocking, 0),
                  "making the stream of variants that leave"));
  return made;
}

// Every copy has been waited for, but those that took too long.
HostTier::~HostTier() {
  if (stream_ == nullptr) return;
  if (!device_.health().ok()) (void)cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

Result<size_t> HostTier::reserve(size_t bytes) {
  bytes = bytes / kPage * kPage;
  if (bytes == 0) return bytes;
  RETURN_IF_ERROR(device_.use());
  ASSIGN_OR_RETURN(PinnedMemory memory,
                   PinnedMemory::make(device_, bytes, "variants that leave the device"));
  pool_->add(std::move(memory), this);
  return bytes;
}

Status HostTier::order_out(const DeviceMemory& from, const HostPool::Pieces& to) {
  size_t at = 0;
  for (const HostPool::Pieces::Piece& piece : to.all()) {
    RETURN_IF_ERROR(CUDA_STATUS(device_,
                                cudaMemcpyAsync(piece.data, from.at<void>(at), piece.bytes,
                                                cudaMemcpyDeviceToHost, stream_),
                                kOut));
    at += piece.bytes;
  }
  return {};
}

Result<HostPool::Pieces> HostTier::copy_out(const DeviceMemory& from) {
  RETURN_IF_ERROR(device_.health());
  RETURN_IF_ERROR(device_.use());
  ASSIGN_OR_RETURN(HostPool::Pieces to, pool_->take(from.bytes(), this));
  Status status = order_out(from, to);
  // Also when not all was ordered: whoever has the memory next would meet what was. One stream for
  // all who copy out: its end is theirs.
  const Status ended =
      device_.await([&] { return cudaStreamQuery(stream_); }, "cudaStreamQuery", kOut);
  // Where only the question failed the copies still end; else nobody may have their memory again.
  if (!ended.ok() && (!device_.health().ok() || cudaStreamSynchronize(stream_) != cudaSuccess))
    to.abandon();
  if (status.ok()) status = ended;
  RETURN_IF_ERROR(status);
  return to;
}

Status HostTier::copy_back(const DeviceMemory& to, const HostPool::Pieces& from,
                           const std::atomic<bool>& cancelled) {
  RETURN_IF_ERROR(device_.health());
  RETURN_IF_ERROR(device_.use());
  // Two stretches are under way, so that the link never pauses.
  std::array<CudaEvent, 2> ends;
  for (CudaEvent& end : ends) {
    ASSIGN_OR_RETURN(end, CudaEvent::make(device_));
  }
  size_t at = 0, turn = 0;
  for (const HostPool::Pieces::Piece& piece : from.all()) {
    for (size_t done = 0; done < piece.bytes; ++turn) {
      CudaEvent& end = ends[turn % 2];
      if (turn >= 2)
        RETURN_IF_ERROR(
            device_.await([&] { return cudaEventQuery(end.get()); }, "cudaEventQuery", kBack));
      if (cancelled) return deltad::cancelled("nobody waits for it any more");
      const size_t bytes = std::min(kStretch, piece.bytes - done);
      RETURN_IF_ERROR(CUDA_STATUS(device_,
                                  cudaMemcpyAsync(to.at<void>(at), piece.data + done, bytes,
                                                  cudaMemcpyHostToDevice, device_.load()),
                                  kBack));
      RETURN_IF_ERROR(CUDA_STATUS(device_, cudaEventRecord(end.get(), device_.load()), kBack));
      done += bytes;
      at += bytes;
    }
  }
  return {};
}

}  // namespace deltad
