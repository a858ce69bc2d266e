#include "backend/cuda/cuda_kv_swap.h"

namespace deltad {

Result<std::unique_ptr<CudaKvSwap>> CudaKvSwap::make(CudaDevice& device, const KvView& kv,
                                                     int64_t layers, int32_t host_blocks) {
  std::unique_ptr<CudaKvSwap> made(new CudaKvSwap(device, kv, layers));
  RETURN_IF_ERROR(device.use());
  ASSIGN_OR_RETURN(
      made->host_,
      PinnedMemory::make(device, static_cast<size_t>(host_blocks * layers * kv.block_bytes),
                         "KV blocks of preempted sequences"));
  RETURN_IF_ERROR(CUDA_STATUS(
      device, cudaDeviceGetAttribute(&made->most_pitch_, cudaDevAttrMaxPitch, device.ordinal()),
      "looking at a GPU"));
  RETURN_IF_ERROR(
      CUDA_STATUS(device, cudaStreamCreateWithPriority(&made->stream_, cudaStreamNonBlocking, 0),
                  "making the stream of preempted sequences"));
  RETURN_IF_ERROR(CUDA_STATUS(device,
                              cudaEventCreateWithFlags(&made->copied_, cudaEventDisableTiming),
                              "making the event of preempted sequences"));
  return made;
}

// A copy that no step came after may be under way.
CudaKvSwap::~CudaKvSwap() {
  (void)device_.use();
  if (stream_ != nullptr) {
    if (cudaStreamSynchronize(stream_) != cudaSuccess) cudaDeviceSynchronize();
    cudaStreamDestroy(stream_);
  }
  if (copied_ != nullptr) cudaEventDestroy(copied_);
}

Status CudaKvSwap::copy(std::span<const KvBlockCopy> copies, cudaMemcpyKind kind) {
  RETURN_IF_ERROR(device_.use());
  const Status status = order(copies, kind);
  if (!status.ok()) (void)cudaStreamSynchronize(stream_);
  return status;
}

Status CudaKvSwap::order(std::span<const KvBlockCopy> copies, cudaMemcpyKind kind) {
  constexpr char kPurpose[] = "copying KV blocks of a preempted sequence";
  RETURN_IF_ERROR(device_.order_after_steps(stream_));
  const auto bytes = static_cast<size_t>(kv_.block_bytes), layers = static_cast<size_t>(layers_);
  const size_t pitch = static_cast<size_t>(kv_.blocks) * bytes;  // from layer to layer
  // A device takes pitches up to some 2 GiB: of a larger cache, layers are copied one by one.
  const bool at_once = pitch <= static_cast<size_t>(most_pitch_);
  for (const KvBlockCopy& c : copies) {
    char* block = static_cast<char*>(kv_.data) + c.block * kv_.block_bytes;
    char* host = static_cast<char*>(host_.data()) + c.host_block * layers_ * kv_.block_bytes;
    const bool out = kind == cudaMemcpyDeviceToHost;
    if (at_once) {
      RETURN_IF_ERROR(
          CUDA_STATUS(device_,
                      cudaMemcpy2DAsync(out ? host : block, out ? bytes : pitch, out ? block : host,
                                        out ? pitch : bytes, bytes, layers, kind, stream_),
                      kPurpose));
      continue;
    }
    for (size_t layer = 0; layer < layers; ++layer) {
      char* on_device = block + layer * pitch;
      char* on_host = host + layer * bytes;
      RETURN_IF_ERROR(CUDA_STATUS(device_,
                                  cudaMemcpyAsync(out ? on_host : on_device,
                                                  out ? on_device : on_host, bytes, kind, stream_),
                                  kPurpose));
    }
  }
  RETURN_IF_ERROR(CUDA_STATUS(device_, cudaEventRecord(copied_, stream_), kPurpose));
  return CUDA_STATUS(device_, cudaStreamWaitEvent(device_.compute(), copied_, 0), kPurpose);
}

}  // namespace deltad
