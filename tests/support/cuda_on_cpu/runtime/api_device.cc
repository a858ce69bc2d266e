// Devices and their properties: those of an H100, with the memory that the test gave them.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/support/cuda_on_cpu/runtime/limits.h"
#include "tests/support/cuda_on_cpu/runtime/stream.h"

using namespace deltad::emulated_gpu;

namespace {

bool is_device(const Gpu& gpu, int device) { return device >= 0 && device < gpu.options.devices; }

bool are_peers(const Gpu& gpu, int a, int b) {
  const int together = gpu.options.peers;
  return together == 0 || a / together == b / together;
}

void wait_for_device(Gpu& gpu, int device) {
  // Graphs' branches end in a stream too, so the streams' ends are all there is.
  gpu.handles.for_each_ever<CUstream_st>([&](CUstream_st& stream) {
    if (stream.device == device) wait_for(gpu, stream.last);
  });
  wait_for(gpu, gpu.devices[static_cast<size_t>(device)].null_stream->last);
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  EMULATED_CALL(cudaGetDeviceCount);
  *count = 0;
  return call.make([&](Gpu& gpu) -> cudaError_t {
    *count = gpu.options.devices;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  EMULATED_CALL(cudaSetDevice);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (!is_device(gpu, device)) return cudaErrorInvalidDevice;
    current_device() = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  EMULATED_CALL(cudaGetDevice);
  return call.make([&](Gpu&) -> cudaError_t {
    *device = current_device();
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* prop, int device) {
  EMULATED_CALL(cudaGetDeviceProperties);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (!is_device(gpu, device)) return cudaErrorInvalidDevice;
    *prop = {};
    std::snprintf(prop->name, sizeof prop->name, "emulated GPU");
    prop->totalGlobalMem = gpu.options.memory_bytes;
    prop->sharedMemPerBlock = kDefaultSharedBytes;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = kMaxThreads;
    std::copy_n(kMaxBlock, 3, prop->maxThreadsDim);
    std::copy_n(kMaxGrid, 3, prop->maxGridSize);
    prop->major = 9;
    prop->multiProcessorCount = 132;
    prop->canMapHostMemory = prop->concurrentKernels = prop->unifiedAddressing = 1;
    prop->pciBusID = device + 1;
    prop->asyncEngineCount = 3;
    prop->memoryBusWidth = 5120;
    prop->l2CacheSize = 50 << 20;
    prop->sharedMemPerMultiprocessor = 228 << 10;
    prop->sharedMemPerBlockOptin = kMaxSharedBytes;
    prop->hostRegisterSupported = prop->memoryPoolsSupported = 1;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attr, int device) {
  EMULATED_CALL(cudaDeviceGetAttribute);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (!is_device(gpu, device)) return cudaErrorInvalidDevice;
    switch (attr) {
      case cudaDevAttrMaxThreadsPerBlock:
        *value = kMaxThreads;
        break;
      case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = kDefaultSharedBytes;
        break;
      case cudaDevAttrWarpSize:
        *value = 32;
        break;
      case cudaDevAttrMaxPitch:
        *value = gpu.options.most_pitch;
        break;
      case cudaDevAttrMultiProcessorCount:
        *value = 132;
        break;
      case cudaDevAttrIntegrated:
      case cudaDevAttrPageableMemoryAccess:
      case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        break;
      case cudaDevAttrL2CacheSize:
        *value = 50 << 20;
        break;
      case cudaDevAttrAsyncEngineCount:
        *value = 3;
        break;
      case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        break;
      case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = 228 << 10;
        break;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = kMaxSharedBytes;
        break;
      case cudaDevAttrCanMapHostMemory:
      case cudaDevAttrConcurrentKernels:
      case cudaDevAttrUnifiedAddressing:
      case cudaDevAttrHostRegisterSupported:
      case cudaDevAttrMemoryPoolsSupported:
        *value = 1;
        break;
      default:
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  EMULATED_CALL(cudaDeviceGetStreamPriorityRange);
  return call.make([&](Gpu&) -> cudaError_t {
    if (leastPriority != nullptr) *leastPriority = 0;
    if (greatestPriority != nullptr) *greatestPriority = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
  EMULATED_CALL(cudaDeviceGetPCIBusId);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (!is_device(gpu, device)) return cudaErrorInvalidDevice;
    std::snprintf(pciBusId, static_cast<size_t>(len), "0000:%02x:00.0", device + 1);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize(void) {
  EMULATED_CALL(cudaDeviceSynchronize, CallKind::kOrders);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (const cudaError_t error = forbid_capture(call, gpu); error != cudaSuccess) return error;
    wait_for_device(gpu, current_device());
    return cudaSuccess;
  });
}

// Only what the backend uses it for: the error that sticks goes, once the work is over. Memory and
// streams must have been released before.
cudaError_t cudaDeviceReset(void) {
  EMULATED_CALL(cudaDeviceReset, CallKind::kRecovers);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    wait_for_device(gpu, current_device());
    gpu.devices[static_cast<size_t>(current_device())].error = cudaSuccess;
    wait_for_device(gpu, current_device());  // what was left when it broke
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
  EMULATED_CALL(cudaDeviceCanAccessPeer);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (!is_device(gpu, device) || !is_device(gpu, peerDevice)) return cudaErrorInvalidDevice;
    *canAccessPeer = device != peerDevice && are_peers(gpu, device, peerDevice) ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags) {
  EMULATED_CALL(cudaDeviceEnablePeerAccess);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (flags != 0) return cudaErrorInvalidValue;
    if (!is_device(gpu, peerDevice) || peerDevice == current_device()) {
      return cudaErrorInvalidDevice;
    }
    if (!are_peers(gpu, current_device(), peerDevice)) return cudaErrorPeerAccessUnsupported;
    auto& peers = gpu.devices[static_cast<size_t>(current_device())].peers;
    if (!peers.insert(peerDevice).second) return cudaErrorPeerAccessAlreadyEnabled;
    gpu.memory.peers_changed();
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peerDevice) {
  EMULATED_CALL(cudaDeviceDisablePeerAccess, CallKind::kReleases);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    auto& peers = gpu.devices[static_cast<size_t>(current_device())].peers;
    if (peers.erase(peerDevice) == 0) return cudaErrorPeerAccessNotEnabled;
    gpu.memory.peers_changed();
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* driverVersion) {
  *driverVersion = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
  *runtimeVersion = CUDART_VERSION;
  return cudaSuccess;
}
