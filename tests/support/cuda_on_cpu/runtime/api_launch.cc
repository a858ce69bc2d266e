// Kernels: found by name, launched on the emulator of device code.
#include <cstring>

#include "tests/support/cuda_on_cpu/kernel_registry.h"
#include "tests/support/cuda_on_cpu/runtime/limits.h"
#include "tests/support/cuda_on_cpu/runtime/stream.h"

using namespace deltad::emulated_gpu;
namespace emulator = deltad::emulator;

namespace {

cudaError_t error_of(const emulator::Report& report) {
  switch (report.faults.front().kind) {
    case emulator::FaultKind::kGlobalBounds:
      return cudaErrorIllegalAddress;
    case emulator::FaultKind::kMisaligned:
      return cudaErrorMisalignedAddress;
    case emulator::FaultKind::kDeadlock:
      return cudaErrorLaunchTimeout;
    default:
      return cudaErrorLaunchFailure;
  }
}

int shared_limit(const CUkern_st& kernel, int device) {
  const auto found = kernel.shared_limit.find(device);
  return found == kernel.shared_limit.end() ? kDefaultSharedBytes : found->second;
}

// As the launch's attributes say.
deltad::cuda::Extent cluster_of(const cudaLaunchConfig_t& config) {
  deltad::cuda::Extent cluster;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    if (attribute.id != cudaLaunchAttributeClusterDimension) continue;
    const auto& dim = attribute.val.clusterDim;
    cluster = {dim.x, dim.y, dim.z};
  }
  return cluster;
}

// What is wrong with the launch; "" if nothing is.
std::string wrong(const CUkern_st& kernel, const cudaLaunchConfig_t& config) {
  const unsigned block[] = {config.blockDim.x, config.blockDim.y, config.blockDim.z};
  const unsigned grid[] = {config.gridDim.x, config.gridDim.y, config.gridDim.z};
  for (int i = 0; i < 3; ++i) {
    if (block[i] == 0 || block[i] > static_cast<unsigned>(kMaxBlock[i])) return "block size";
    if (grid[i] == 0 || grid[i] > static_cast<unsigned>(kMaxGrid[i])) return "grid size";
  }
  const deltad::cuda::Extent cluster = cluster_of(config);
  const unsigned of_cluster[] = {cluster.x, cluster.y, cluster.z};
  uint64_t blocks = 1;
  for (int i = 0; i < 3; ++i) {
    blocks *= of_cluster[i];
    if (of_cluster[i] == 0 || grid[i] % of_cluster[i] != 0) {
      return "a grid that is no multiple of the cluster";
    }
  }
  if (blocks > deltad::cuda::kMostClusterBlocks) {
    return "clusters of " + std::to_string(blocks) + " blocks";
  }
  const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
  if (threads > kernel.kernel->max_threads) {
    return std::to_string(threads) + " threads, its launch bounds allow " +
           std::to_string(kernel.kernel->max_threads);
  }
  const int limit = shared_limit(kernel, current_device());
  if (config.dynamicSmemBytes > static_cast<size_t>(limit)) {
    return std::to_string(config.dynamicSmemBytes) +
           " bytes of shared memory, its attribute says " + std::to_string(limit) +
           " on this device";
  }
  return "";
}

// Addresses of known memory among the parameters.
std::vector<const void*> pointers_in(Gpu& gpu, const std::byte* params, size_t bytes) {
  std::vector<const void*> all;
  for (size_t i = 0; i + sizeof(void*) <= bytes; i += sizeof(void*)) {
    const void* value;
    std::memcpy(&value, params + i, sizeof value);
    if (gpu.memory.find(value) != nullptr) all.push_back(value);
  }
  return all;
}

std::string text_of(const std::string& kernel, const deltad::cuda::Launch& shape) {
  const auto extent = [](const deltad::cuda::Extent& e) {
    return std::to_string(e.x) + "x" + std::to_string(e.y) + "x" + std::to_string(e.z);
  };
  return kernel + " grid " + extent(shape.grid) + " block " + extent(shape.block) + " shared " +
         std::to_string(shape.shared_bytes) +
         (shape.cluster.x * shape.cluster.y * shape.cluster.z == 1
              ? ""
              : " cluster " + extent(shape.cluster));
}

void run_kernel(Gpu& gpu, Operation& operation, const emulator::Kernel& kernel,
                const deltad::cuda::Launch& shape, const std::vector<std::byte>& params) {
  gpu.memory.show_to(operation.work->device);
  emulator::Options options;
  options.overlaps_previous = operation.work->overlaps;
  options.races = gpu.options.races_in_kernels;
  if (gpu.options.order == Order::kLatest) options.order = emulator::Order::kLifo;
  if (gpu.options.order == Order::kRandom) options.order = emulator::Order::kRandom;
  options.seed = static_cast<uint32_t>(gpu.options.seed + operation.number);
  const emulator::Report report = kernel.run(shape, params.data(), options);
  gpu.memory.inspect(operation);
  if (report.ok()) return;
  gpu.fault(FaultKind::kKernel, operation.work->text() + ": " + report.text());
  gpu.fail(operation.work->device, error_of(report));
}

}  // namespace

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, enum cudaJitOption*,
                                void**, unsigned int, enum cudaLibraryOption*, void**,
                                unsigned int) {
  EMULATED_CALL(cudaLibraryLoadData);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (library == nullptr || code == nullptr) return cudaErrorInvalidValue;
    auto made = std::make_unique<CUlib_st>();
    made->kind = "library";
    made->made_at = call.site();
    *library = gpu.handles.add(std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  EMULATED_CALL(cudaLibraryUnload, CallKind::kReleases);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    CUlib_st* found = gpu.handles.find<CUlib_st>(library);
    if (found == nullptr) return call.misuse(cudaErrorInvalidResourceHandle, "no such library");
    gpu.handles.for_each<CUkern_st>([&](CUkern_st& kernel) {
      if (kernel.library == found) kernel.destroyed = true;
    });
    found->destroyed = true;
    return cudaSuccess;
  });
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* pKernel, cudaLibrary_t library, const char* name) {
  EMULATED_CALL(cudaLibraryGetKernel);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    const CUlib_st* found = gpu.handles.find<CUlib_st>(library);
    if (found == nullptr) return call.misuse(cudaErrorInvalidResourceHandle, "no such library");
    const emulator::Kernel* kernel = emulator::KernelRegistry::instance().find(name);
    if (kernel == nullptr) return cudaErrorSymbolNotFound;
    auto made = std::make_unique<CUkern_st>();
    made->kind = "kernel";
    made->made_at = call.site();
    made->library = found;
    made->kernel = kernel;
    *pKernel = gpu.handles.add(std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* func, enum cudaFuncAttribute attr, int value) {
  EMULATED_CALL(cudaFuncSetAttribute);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    CUkern_st* kernel = gpu.handles.find<CUkern_st>(func);
    if (kernel == nullptr) return call.misuse(cudaErrorInvalidDeviceFunction, "no such kernel");
    if (attr == cudaFuncAttributePreferredSharedMemoryCarveout) {
      return value >= -1 && value <= 100 ? cudaSuccess : cudaErrorInvalidValue;
    }
    if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value > kMaxSharedBytes) {
      return cudaErrorInvalidValue;
    }
    kernel->shared_limit[current_device()] = value;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes* attr, const void* func) {
  EMULATED_CALL(cudaFuncGetAttributes);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    const CUkern_st* kernel = gpu.handles.find<CUkern_st>(func);
    if (kernel == nullptr) return call.misuse(cudaErrorInvalidDeviceFunction, "no such kernel");
    *attr = {};
    attr->maxThreadsPerBlock = static_cast<int>(kernel->kernel->max_threads);
    attr->maxDynamicSharedSizeBytes = shared_limit(*kernel, current_device());
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* func, void** args) {
  EMULATED_CALL(cudaLaunchKernelExC);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    CUstream_st* stream = stream_of(call, gpu, config->stream);
    const CUkern_st* kernel = gpu.handles.find<CUkern_st>(func);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (kernel == nullptr) return call.misuse(cudaErrorInvalidDeviceFunction, "no such kernel");
    if (stream->device != current_device()) {
      return call.misuse(cudaErrorInvalidResourceHandle,
                         stream->text() + ", not of the current one");
    }
    if (const std::string what = wrong(*kernel, *config); !what.empty()) {
      return call.misuse(cudaErrorInvalidValue, kernel->kernel->name + ": " + what);
    }
    Work work = work_of(call, *stream, WorkKind::kKernel);
    work.name = kernel->kernel->name;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      const cudaLaunchAttribute& attribute = config->attrs[i];
      if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization) {
        work.overlaps = attribute.val.programmaticStreamSerializationAllowed != 0;
      }
    }
    const deltad::cuda::Launch shape = {
        {config->gridDim.x, config->gridDim.y, config->gridDim.z},
        {config->blockDim.x, config->blockDim.y, config->blockDim.z},
        static_cast<uint32_t>(config->dynamicSmemBytes),
        cluster_of(*config)};
    const auto* bytes = static_cast<const std::byte*>(args[0]);
    work.uses = pointers_in(gpu, bytes, kernel->kernel->params_bytes);
    work.run = [shape, kernel = kernel->kernel,
                params = std::vector<std::byte>(bytes, bytes + kernel->kernel->params_bytes)](
                   Gpu& g, Operation& operation) {
      run_kernel(g, operation, *kernel, shape, params);
    };
    const cudaError_t error = hand_over(gpu, *stream, std::move(work));
    if (error == cudaSuccess) gpu.launches.push_back(text_of(kernel->kernel->name, shape));
    return error;
  });
}
