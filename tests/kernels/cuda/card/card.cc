#include "tests/kernels/cuda/card/card.h"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>

namespace deltad::cuda {
namespace {

// The first call that failed, with its name; "" so far.
class Calls {
 public:
  bool ok(const char* call, cudaError_t error) {
    if (error != cudaSuccess) failed_ = std::string(call) + ": " + cudaGetErrorString(error);
    return error == cudaSuccess;
  }
  void fail(const std::string& what) { failed_ = what; }
  const std::string& failed() const { return failed_; }

 private:
  std::string failed_;
};

std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

// Loaded once, for good; null if that failed.
cudaLibrary_t library_of(const std::string& cubin, Calls& calls) {
  static std::map<std::string, cudaLibrary_t> loaded;
  auto [at, is_new] = loaded.try_emplace(cubin, nullptr);
  if (!is_new && at->second != nullptr) return at->second;
  std::ifstream in(cubin, std::ios::binary);
  const std::string image{std::istreambuf_iterator<char>(in), {}};
  if (image.empty()) {
    calls.fail(cubin + " is not there, or empty");
    return nullptr;
  }
  calls.ok(cubin.c_str(), cudaLibraryLoadData(&at->second, image.data(), nullptr, nullptr, 0,
                                              nullptr, nullptr, 0));
  return at->second;
}

}  // namespace

std::string card_problem() {
  int count = 0, driver = 0, managed = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "no NVIDIA driver";
    return "the driver is one for CUDA " + version(driver) + ", the program needs " +
           version(CUDART_VERSION);
  }
  if (error != cudaSuccess) return cudaGetErrorString(error);
  if (count == 0) return "no CUDA card";
  if (cudaDeviceGetAttribute(&managed, cudaDevAttrManagedMemory, 0) != cudaSuccess || managed == 0)
    return "the card has no managed memory, in which the tests' buffers lie";
  return "";
}

std::string card_architecture() {
  int major = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess)
    return "";
  // Machine code runs on later cards of its major version, except where it says "a".
  return "sm_" + std::to_string(major) + (major == 9 ? "0a" : "0");
}

std::byte* take_managed(size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMallocManaged(&memory, bytes, cudaMemAttachGlobal);
  if (error == cudaSuccess) return static_cast<std::byte*>(memory);
  std::fprintf(stderr, "cudaMallocManaged of %zu bytes: %s\n", bytes, cudaGetErrorString(error));
  std::exit(1);
}

void give_back_managed(std::byte* memory) { (void)cudaFree(memory); }

std::string run_on_card(const std::string& cubin, const char* kernel, const Launch& shape,
                        std::span<const std::byte> params) {
  Calls calls;
  cudaKernel_t found = nullptr;
  const cudaLibrary_t library = library_of(cubin, calls);
  if (library == nullptr ||
      !calls.ok("cudaLibraryGetKernel", cudaLibraryGetKernel(&found, library, kernel))) {
    return calls.failed();
  }
  const auto* function = reinterpret_cast<const void*>(found);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.grid.x, shape.grid.y, shape.grid.z);
  config.blockDim = dim3(shape.block.x, shape.block.y, shape.block.z);
  config.dynamicSmemBytes = shape.shared_bytes;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {shape.cluster.x, shape.cluster.y, shape.cluster.z};
  config.attrs = &cluster;
  config.numAttrs = shape.cluster.x * shape.cluster.y * shape.cluster.z > 1 ? 1 : 0;
  void* arguments[] = {const_cast<std::byte*>(params.data())};
  (void)(calls.ok("cudaFuncSetAttribute",
                  cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(shape.shared_bytes))) &&
         calls.ok("cudaLaunchKernelExC", cudaLaunchKernelExC(&config, function, arguments)) &&
         calls.ok("cudaDeviceSynchronize", cudaDeviceSynchronize()));
  return calls.failed();
}

}  // namespace deltad::cuda
