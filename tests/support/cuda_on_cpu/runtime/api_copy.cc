// Copies and fills. A copy from ordinary host memory reads it at once, one to it is over when the
// call returns; pinned memory is read and written when the copy runs.
#include <cstring>

#include "tests/support/cuda_on_cpu/runtime/stream.h"

using namespace deltad::emulated_gpu;

namespace {

// Rows of bytes; a plain copy has one.
struct Shape {
  size_t width, height = 1;
};
struct Side {
  std::byte* base;
  size_t pitch = 0;
  std::byte* row(size_t i) const { return base + i * pitch; }
  size_t span(const Shape& shape) const { return (shape.height - 1) * pitch + shape.width; }
};

enum class Place : uint8_t { kOrdinary, kPinned, kDevice };

Place place_of(Gpu& gpu, const void* address) {
  const Allocation* allocation = gpu.memory.find(address);
  if (allocation == nullptr) return Place::kOrdinary;
  return allocation->on_device() ? Place::kDevice : Place::kPinned;
}

bool goes(cudaMemcpyKind kind, Place to, Place from) {
  const bool to_device = to == Place::kDevice, from_device = from == Place::kDevice;
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

// Pinned memory goes from the host's hands into the device's.
void hand_over_pinned(Gpu& gpu, Operation& operation, const Side& side, const Shape& shape,
                      bool write) {
  for (size_t i = 0; i < shape.height; ++i) {
    Allocation* allocation = gpu.memory.find(side.row(i));
    if (allocation == nullptr || !allocation->watch) return;
    const auto begin = static_cast<size_t>(side.row(i) - allocation->base);
    const auto wrong = allocation->watch->hand_over({begin, begin + shape.width}, write,
                                                    operation.shared_from_this(), gpu.host);
    if (!wrong) continue;
    gpu.fault(FaultKind::kPinnedMemory, *wrong + " while earlier work was under way, before " +
                                            operation.work->text() + ": " + allocation->text());
  }
}

void run_copy(Gpu& gpu, Operation& operation, const Side& to, const Side& from,
              const Shape& shape) {
  for (size_t i = 0; i < shape.height; ++i) {
    const std::byte* source = operation.staged.empty()
                                  ? gpu.memory.touch(operation, from.row(i), shape.width, false)
                                  : operation.staged.data() + i * shape.width;
    std::byte* target = gpu.memory.touch(operation, to.row(i), shape.width, true);
    if (source == nullptr || target == nullptr) return;
    std::memmove(target, source, shape.width);
    gpu.memory.written(to.row(i), shape.width);
  }
}

cudaError_t copy(Call& call, Gpu& gpu, const Side& to, const Side& from, const Shape& shape,
                 cudaMemcpyKind kind, cudaStream_t handle, bool wait) {
  CUstream_st* stream = stream_of(call, gpu, handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (shape.width == 0 || shape.height == 0) return cudaSuccess;
  const Place to_place = place_of(gpu, to.base), from_place = place_of(gpu, from.base);
  if (!goes(kind, to_place, from_place)) {
    return call.misuse(cudaErrorInvalidMemcpyDirection, "the addresses say another direction");
  }
  for (const Side& side : {to, from}) {
    if (!gpu.memory.valid(call.name(), call.site(), side.base, side.span(shape))) {
      return cudaErrorInvalidValue;
    }
  }
  const bool ordinary = to_place == Place::kOrdinary || from_place == Place::kOrdinary;
  if (ordinary && stream->capture) {
    return call.misuse(cudaErrorStreamCaptureUnsupported, "a captured copy of ordinary memory");
  }
  if (ordinary && !wait && gpu.options.pageable_is_fault) {
    call.misuse(cudaSuccess, "an asynchronous copy of memory that is not pinned");
  }
  Work work = work_of(call, *stream, WorkKind::kCopy);
  work.uses = {to.base, from.base};
  work.prepare = [=](Gpu& g, Operation& operation) {
    if (from_place == Place::kPinned) hand_over_pinned(g, operation, from, shape, false);
    if (to_place == Place::kPinned) hand_over_pinned(g, operation, to, shape, true);
    if (from_place != Place::kOrdinary) return;
    for (size_t i = 0; i < shape.height; ++i) {
      operation.staged.insert(operation.staged.end(), from.row(i), from.row(i) + shape.width);
    }
  };
  work.run = [=](Gpu& g, Operation& operation) { run_copy(g, operation, to, from, shape); };
  OperationPtr operation;
  const cudaError_t result = hand_over(gpu, *stream, std::move(work), {}, &operation);
  if (wait || to_place == Place::kOrdinary) wait_for(gpu, operation);
  return result;
}

cudaError_t fill(Call& call, Gpu& gpu, void* address, int value, size_t count,
                 cudaStream_t handle) {
  CUstream_st* stream = stream_of(call, gpu, handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (count == 0) return cudaSuccess;
  if (place_of(gpu, address) != Place::kDevice) {
    return call.misuse(cudaErrorInvalidValue, "not memory of a device");
  }
  if (!gpu.memory.valid(call.name(), call.site(), address, count)) return cudaErrorInvalidValue;
  Work work = work_of(call, *stream, WorkKind::kCopy);
  work.uses = {address};
  work.run = [=](Gpu& g, Operation& operation) {
    std::byte* bytes = g.memory.touch(operation, address, count, true);
    if (bytes != nullptr) std::memset(bytes, value, count);
  };
  return hand_over(gpu, *stream, std::move(work));
}

Side side(const void* base, size_t pitch = 0) {
  return {static_cast<std::byte*>(const_cast<void*>(base)), pitch};
}

}  // namespace

cudaError_t cudaMemcpy(void* dst, const void* src, size_t count, enum cudaMemcpyKind kind) {
  EMULATED_CALL(cudaMemcpy);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (const cudaError_t error = forbid_capture(call, gpu); error != cudaSuccess) return error;
    return copy(call, gpu, side(dst), side(src), {count}, kind, nullptr, true);
  });
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  EMULATED_CALL(cudaMemcpyAsync);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    return copy(call, gpu, side(dst), side(src), {count}, kind, stream, false);
  });
}

cudaError_t cudaMemcpy2DAsync(void* dst, size_t dpitch, const void* src, size_t spitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
  EMULATED_CALL(cudaMemcpy2DAsync);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (width > dpitch || width > spitch) return cudaErrorInvalidValue;
    if (std::max(dpitch, spitch) > static_cast<size_t>(gpu.options.most_pitch))
      return cudaErrorInvalidPitchValue;
    return copy(call, gpu, side(dst, dpitch), side(src, spitch), {width, height}, kind, stream,
                false);
  });
}

cudaError_t cudaMemcpyPeerAsync(void* dst, int dstDevice, const void* src, int srcDevice,
                                size_t count, cudaStream_t stream) {
  EMULATED_CALL(cudaMemcpyPeerAsync);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    for (const auto& [address, device] : {std::pair<const void*, int>{dst, dstDevice},
                                          std::pair<const void*, int>{src, srcDevice}}) {
      const Allocation* allocation = gpu.memory.find(address);
      if (allocation == nullptr || !allocation->on_device() || allocation->device != device) {
        return call.misuse(cudaErrorInvalidValue,
                           "an address that is not of device " + std::to_string(device));
      }
    }
    return copy(call, gpu, side(dst), side(src), {count}, cudaMemcpyDeviceToDevice, stream, false);
  });
}

cudaError_t cudaMemset(void* devPtr, int value, size_t count) {
  EMULATED_CALL(cudaMemset);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (const cudaError_t error = forbid_capture(call, gpu); error != cudaSuccess) return error;
    return fill(call, gpu, devPtr, value, count, nullptr);
  });
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream) {
  EMULATED_CALL(cudaMemsetAsync);
  return call.make(
      [&](Gpu& gpu) -> cudaError_t { return fill(call, gpu, devPtr, value, count, stream); });
}
