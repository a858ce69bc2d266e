// Injected failures: each call of a run in turn, once or for good, and work that fails when it
// runs.
#include "tests/support/cuda_on_cpu/runtime/tests/fixture.h"

namespace deltad::emulated_gpu {
namespace {

constexpr int32_t kCount = 10;
constexpr size_t kBytes = kCount * sizeof(int32_t);

// A careful program: it stops at the first error, and releases what it has.
cudaError_t careful() {
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  void *device = nullptr, *pinned = nullptr;
  const auto work = [&]() -> cudaError_t {
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) return error;
    if ((error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming)) != cudaSuccess) {
      return error;
    }
    if ((error = cudaMalloc(&device, kBytes)) != cudaSuccess) return error;
    if ((error = cudaMallocHost(&pinned, kBytes)) != cudaSuccess) return error;
    if ((error = cudaMemsetAsync(device, 0, kBytes, stream)) != cudaSuccess) return error;
    error = cudaMemcpyAsync(pinned, device, kBytes, cudaMemcpyDeviceToHost, stream);
    if (error != cudaSuccess) return error;
    if ((error = cudaEventRecord(event, stream)) != cudaSuccess) return error;
    return cudaEventSynchronize(event);
  };
  cudaError_t error = work();
  const auto keep = [&](cudaError_t of_release) {
    if (error == cudaSuccess) error = of_release;
  };
  // Twice: a synchronisation that fails has waited for nothing.
  if (stream != nullptr && cudaStreamSynchronize(stream) != cudaSuccess) {
    keep(cudaStreamSynchronize(stream));
  }
  if (pinned != nullptr) keep(cudaFreeHost(pinned));
  if (device != nullptr) keep(cudaFree(device));
  if (event != nullptr) keep(cudaEventDestroy(event));
  if (stream != nullptr) keep(cudaStreamDestroy(stream));
  return error;
}

TEST_F(GpuTest, EveryCallCanFail) {
  EXPECT_EQ(careful(), cudaSuccess);
  const std::vector<CallRecord> all = calls();
  ASSERT_EQ(all.size(), 13u);
  EXPECT_EQ(all[2].name, "cudaMalloc");
  for (size_t k = 0; k < all.size(); ++k) {
    start({});
    inject({k, cudaErrorUnknown});
    const bool tried_again = all[k].name == "cudaStreamSynchronize";
    EXPECT_EQ(careful(), tried_again ? cudaSuccess : cudaErrorUnknown) << all[k].name;
    EXPECT_EQ(report(), "") << all[k].name;
    EXPECT_EQ(leaks(), "") << all[k].name;
    EXPECT_EQ(allocated_bytes(), 0u);
  }
}

TEST_F(GpuTest, AnErrorThatSticksFailsAllThatFollows) {
  for (size_t k = 0; k < 13; ++k) {
    start({});
    inject({.call = k, .error = cudaErrorECCUncorrectable, .sticky = true});
    EXPECT_EQ(careful(), cudaErrorECCUncorrectable);
    EXPECT_EQ(leaks(), "");
    EXPECT_EQ(cudaGetLastError(), cudaErrorECCUncorrectable);
    EXPECT_EQ(cudaGetLastError(), cudaErrorECCUncorrectable);
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, 0), cudaErrorECCUncorrectable);
  }
}

TEST_F(GpuTest, WorkCanFailWhenItRuns) {
  for (const Options& options : all_orders()) {
    start(options);
    inject({.call = 4, .error = cudaErrorIllegalAddress, .at_execution = true});
    EXPECT_EQ(careful(), cudaErrorIllegalAddress);
    EXPECT_EQ(leaks(), "");
  }
}

TEST_F(GpuTest, WorkCanHangUntilItIsLetGo) {
  const cudaStream_t a = stream();
  int32_t* x = device_array(kCount);
  inject({.call = call_count(), .error = 0, .hangs = true});
  ASSERT_CUDA(cudaMemsetAsync(x, 1, kBytes, a));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(cudaStreamQuery(a), cudaErrorNotReady);
  let_go();
  ASSERT_CUDA(cudaStreamSynchronize(a));
  EXPECT_EQ(values(x, 1)[0], 0x01010101);
}

// Calls of one device are numbered apart, whatever the others do; a broken one breaks no other.
TEST_F(GpuTest, FailuresCanBeOfOneDevice) {
  start({.devices = 2});
  ASSERT_CUDA(cudaSetDevice(1));
  size_t of_device = 0;
  for (const CallRecord& call : calls()) of_device += call.device == 1 ? 1 : 0;
  ASSERT_CUDA(cudaSetDevice(0));  // one more of device 1
  inject({.call = of_device + 1, .error = cudaErrorECCUncorrectable, .sticky = true, .device = 1});
  void* memory = nullptr;
  ASSERT_CUDA(cudaMalloc(&memory, kBytes));
  ASSERT_CUDA(cudaFree(memory));
  ASSERT_CUDA(cudaSetDevice(1));
  EXPECT_EQ(cudaMalloc(&memory, kBytes), cudaErrorECCUncorrectable);
  ASSERT_CUDA(cudaSetDevice(0));
  ASSERT_CUDA(cudaMalloc(&memory, kBytes));
  ASSERT_CUDA(cudaFree(memory));
}

TEST_F(GpuTest, HandlesThatAreGoneAreFound) {
  cudaEvent_t event = nullptr;
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  EXPECT_NE(leaks().find("stream made at"), std::string::npos);
  ASSERT_CUDA(cudaEventDestroy(event));
  ASSERT_CUDA(cudaStreamDestroy(stream));
  EXPECT_EQ(leaks(), "");
  EXPECT_EQ(cudaEventRecord(event, nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(expected_faults(), (std::vector<FaultKind>{FaultKind::kMisuse, FaultKind::kMisuse}));
}

void call_back(void*) {
  int device = 0;
  cudaGetDevice(&device);
}

TEST_F(GpuTest, AHostFunctionMustNotCallTheRuntime) {
  const cudaStream_t a = stream();
  ASSERT_CUDA(cudaLaunchHostFunc(a, call_back, nullptr));
  ASSERT_CUDA(cudaStreamSynchronize(a));
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kMisuse});
}

}  // namespace
}  // namespace deltad::emulated_gpu
