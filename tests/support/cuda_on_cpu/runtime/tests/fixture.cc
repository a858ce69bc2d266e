#include "tests/support/cuda_on_cpu/runtime/tests/fixture.h"

#include "kernels/cuda/device.h"
#include "tests/support/cuda_on_cpu/kernel_registry.h"

namespace deltad::emulated_gpu {
namespace {

constexpr uint32_t kThreads = 32;

void scale_kernel(ScaleParams p) {
  cuda::wait_for_previous_kernel();
  for (auto i = static_cast<int32_t>(threadIdx.x); i < p.count; i += kThreads) {
    cuda::store_global(p.out + i, cuda::load_global(p.in + i) * p.factor + p.add);
  }
}

// Reads before it has waited: what the kernel before writes it must not read.
void early_kernel(ScaleParams p) {
  const auto i = static_cast<int32_t>(threadIdx.x);
  const int32_t value = i < p.count ? cuda::load_global(p.in + i) : 0;
  cuda::wait_for_previous_kernel();
  if (i < p.count) cuda::store_global(p.out + i, value * p.factor + p.add);
}

void gather_kernel(GatherParams p) {
  const auto i = static_cast<int32_t>(threadIdx.x);
  if (i < p.count) cuda::store_global(p.out + i, cuda::load_global(cuda::load_global(p.in + i)));
}

}  // namespace

void GpuTest::start(const Options& options) {
  release();
  reset(options);
  auto& registry = emulator::KernelRegistry::instance();
  registry.add<scale_kernel>(kScaleKernel, kThreads);
  registry.add<early_kernel>(kEarlyKernel, kThreads);
  registry.add<gather_kernel>(kGatherKernel, kThreads);
}

GpuTest::~GpuTest() {
  if (!faults_expected_) {
    EXPECT_EQ(report(), "");
    release();
    EXPECT_EQ(leaks(), "");
  }
}

std::vector<FaultKind> GpuTest::expected_faults() {
  faults_expected_ = true;
  std::vector<FaultKind> kinds;
  for (const Fault& fault : faults()) kinds.push_back(fault.kind);
  return kinds;
}

cudaStream_t GpuTest::stream() {
  cudaStream_t made = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), cudaSuccess);
  streams_.push_back(made);
  return made;
}

cudaEvent_t GpuTest::event() {
  cudaEvent_t made = nullptr;
  EXPECT_EQ(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), cudaSuccess);
  events_.push_back(made);
  return made;
}

int32_t* GpuTest::device_array(size_t count) {
  void* made = nullptr;
  EXPECT_EQ(cudaMalloc(&made, count * sizeof(int32_t)), cudaSuccess);
  device_.push_back(made);
  return static_cast<int32_t*>(made);
}

int32_t* GpuTest::pinned_array(size_t count) {
  void* made = nullptr;
  EXPECT_EQ(cudaMallocHost(&made, count * sizeof(int32_t)), cudaSuccess);
  pinned_.push_back(made);
  return static_cast<int32_t*>(made);
}

std::vector<int32_t> GpuTest::values(const int32_t* device, size_t count) {
  std::vector<int32_t> all(count);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(all.data(), device, count * sizeof(int32_t), cudaMemcpyDeviceToHost),
            cudaSuccess);
  return all;
}

void GpuTest::release() {
  if (!streams_.empty() || !device_.empty() || !pinned_.empty()) cudaDeviceSynchronize();
  for (cudaStream_t s : std::exchange(streams_, {})) cudaStreamDestroy(s);
  for (cudaEvent_t e : std::exchange(events_, {})) cudaEventDestroy(e);
  for (void* p : std::exchange(device_, {})) cudaFree(p);
  for (void* p : std::exchange(pinned_, {})) cudaFreeHost(p);
  if (library_ != nullptr) cudaLibraryUnload(std::exchange(library_, nullptr));
}

cudaError_t GpuTest::launch(const char* kernel, const void* params, cudaStream_t stream,
                            bool overlaps) {
  if (library_ == nullptr) {
    const cudaError_t error =
        cudaLibraryLoadData(&library_, "image", nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (error != cudaSuccess) return error;
  }
  cudaKernel_t found = nullptr;
  if (const cudaError_t error = cudaLibraryGetKernel(&found, library_, kernel);
      error != cudaSuccess) {
    return error;
  }
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config = {{1}, {kThreads}, 0, stream, &attribute, overlaps ? 1u : 0u};
  void* args[] = {const_cast<void*>(params)};
  return cudaLaunchKernelExC(&config, found, args);
}

cudaError_t GpuTest::scale(const int32_t* in, int32_t* out, int32_t count, int32_t factor,
                           int32_t add, cudaStream_t stream, bool overlaps) {
  const ScaleParams params = {in, out, count, factor, add};
  return launch(kScaleKernel, &params, stream, overlaps);
}

std::vector<Options> all_orders() {
  std::vector<Options> all = {{.order = Order::kEager}, {.order = Order::kLatest}};
  for (uint32_t seed = 1; seed <= 8; ++seed) all.push_back({.order = Order::kRandom, .seed = seed});
  return all;
}

}  // namespace deltad::emulated_gpu
