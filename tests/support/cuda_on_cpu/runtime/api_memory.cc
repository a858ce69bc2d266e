// Memory of devices and pinned memory of the host.
#include "tests/support/cuda_on_cpu/runtime/stream.h"

using namespace deltad::emulated_gpu;

namespace {

cudaError_t allocate(Call& call, Gpu& gpu, void** out, size_t size, bool pooled) {
  if (out == nullptr) return cudaErrorInvalidValue;
  *out = nullptr;
  if (size == 0) return cudaSuccess;
  *out = gpu.memory.allocate(current_device(), size, pooled, call.site());
  return *out == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

// −1 if it is none.
int device_of(const Gpu& gpu, cudaMemPool_t pool) {
  const auto number = reinterpret_cast<uintptr_t>(pool);
  if (number == 0 || number > static_cast<uintptr_t>(gpu.options.devices)) return -1;
  return static_cast<int>(number) - 1;
}

// Null if it is none.
Memory::Pool* pool_of(Gpu& gpu, cudaMemPool_t pool) {
  const int device = device_of(gpu, pool);
  return device < 0 ? nullptr : &gpu.memory.pool(device);
}

cudaError_t allocate_pinned(Call& call, void** out, size_t size, bool mapped) {
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (out == nullptr) return cudaErrorInvalidValue;
    *out = nullptr;
    if (const cudaError_t error = forbid_capture(call, gpu); error != cudaSuccess) return error;
    if (size > 0) *out = gpu.memory.allocate_pinned(current_device(), size, mapped, call.site());
    return cudaSuccess;
  });
}

}  // namespace

cudaError_t cudaMalloc(void** devPtr, size_t size) {
  EMULATED_CALL(cudaMalloc);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (const cudaError_t error = forbid_capture(call, gpu); error != cudaSuccess) return error;
    return allocate(call, gpu, devPtr, size, false);
  });
}

cudaError_t cudaFree(void* devPtr) {
  EMULATED_CALL(cudaFree, CallKind::kReleases);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (devPtr == nullptr) return cudaSuccess;
    if (const cudaError_t error = forbid_capture(call, gpu); error != cudaSuccess) return error;
    return gpu.memory.free(devPtr, MemoryKind::kDevice, call.site()) ? cudaSuccess
                                                                     : cudaErrorInvalidValue;
  });
}

// Its addresses are new, so that no order of the stream is needed for them.
cudaError_t cudaMallocAsync(void** devPtr, size_t size, cudaStream_t hStream) {
  EMULATED_CALL(cudaMallocAsync);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    const CUstream_st* stream = stream_of(call, gpu, hStream);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->capture) return call.misuse(cudaErrorNotSupported, "in a captured stream");
    return allocate(call, gpu, devPtr, size, true);
  });
}

// Counted as free at once; gone when the stream gets there.
cudaError_t cudaFreeAsync(void* devPtr, cudaStream_t hStream) {
  EMULATED_CALL(cudaFreeAsync, CallKind::kReleases);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    CUstream_st* stream = stream_of(call, gpu, hStream);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (devPtr == nullptr) return cudaSuccess;
    if (stream->capture) return call.misuse(cudaErrorNotSupported, "in a captured stream");
    if (!gpu.memory.leave(devPtr, call.site())) return cudaErrorInvalidValue;
    Work work = work_of(call, *stream, WorkKind::kMarker);
    work.run = [devPtr, site = call.site()](Gpu& g, Operation& operation) {
      g.memory.left(devPtr, site, operation);
    };
    return hand_over(gpu, *stream, std::move(work));
  });
}

// A pool's handle is its device's number and one.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* memPool, int device) {
  EMULATED_CALL(cudaDeviceGetDefaultMemPool);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (memPool == nullptr) return cudaErrorInvalidValue;
    if (device < 0 || device >= gpu.options.devices) return cudaErrorInvalidDevice;
    *memPool = reinterpret_cast<cudaMemPool_t>(static_cast<uintptr_t>(device) + 1);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void* value) {
  EMULATED_CALL(cudaMemPoolSetAttribute);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    Memory::Pool* pool = pool_of(gpu, memPool);
    if (pool == nullptr || attr != cudaMemPoolAttrReleaseThreshold) return cudaErrorInvalidValue;
    pool->threshold = *static_cast<uint64_t*>(value);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void* value) {
  EMULATED_CALL(cudaMemPoolGetAttribute);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    const Memory::Pool* pool = pool_of(gpu, memPool);
    if (pool == nullptr) return cudaErrorInvalidValue;
    *static_cast<uint64_t*>(value) = attr == cudaMemPoolAttrReleaseThreshold     ? pool->threshold
                                     : attr == cudaMemPoolAttrReservedMemCurrent ? pool->reserved
                                                                                 : pool->used;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep) {
  EMULATED_CALL(cudaMemPoolTrimTo);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    const int device = device_of(gpu, memPool);
    if (device < 0) return cudaErrorInvalidValue;
    gpu.memory.trim(device, minBytesToKeep);
    return cudaSuccess;
  });
}

cudaError_t cudaMallocHost(void** ptr, size_t size) {
  EMULATED_CALL(cudaMallocHost);
  return allocate_pinned(call, ptr, size, false);
}

cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned int flags) {
  EMULATED_CALL(cudaHostAlloc);
  return allocate_pinned(call, pHost, size, (flags & cudaHostAllocMapped) != 0);
}

cudaError_t cudaFreeHost(void* ptr) {
  EMULATED_CALL(cudaFreeHost, CallKind::kReleases);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (ptr == nullptr) return cudaSuccess;
    return gpu.memory.free(ptr, MemoryKind::kPinned, call.site()) ? cudaSuccess
                                                                  : cudaErrorInvalidValue;
  });
}

cudaError_t cudaHostRegister(void* ptr, size_t size, unsigned int flags) {
  EMULATED_CALL(cudaHostRegister);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (ptr == nullptr || size == 0) return cudaErrorInvalidValue;
    if (gpu.memory.overlaps(ptr, size)) return cudaErrorHostMemoryAlreadyRegistered;
    gpu.memory.add_registered(current_device(), ptr, size, (flags & cudaHostRegisterMapped) != 0,
                              call.site());
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* ptr) {
  EMULATED_CALL(cudaHostUnregister, CallKind::kReleases);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    return gpu.memory.free(ptr, MemoryKind::kRegistered, call.site())
               ? cudaSuccess
               : cudaErrorHostMemoryNotRegistered;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  EMULATED_CALL(cudaMemGetInfo);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    *total = gpu.options.memory_bytes;
    *free = gpu.memory.room(current_device());
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* attributes, const void* ptr) {
  EMULATED_CALL(cudaPointerGetAttributes);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    auto* address = const_cast<void*>(ptr);
    const Allocation* allocation = gpu.memory.find(ptr);
    *attributes = {cudaMemoryTypeUnregistered, cudaInvalidDeviceId, nullptr, address};
    if (allocation == nullptr || allocation->freed) return cudaSuccess;
    if (allocation->on_device()) {
      *attributes = {cudaMemoryTypeDevice, allocation->device, address, nullptr};
    } else {
      *attributes = {cudaMemoryTypeHost, allocation->device, allocation->mapped ? address : nullptr,
                     address};
    }
    return cudaSuccess;
  });
}
