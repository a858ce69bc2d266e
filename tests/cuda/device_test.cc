// What is said where there is no GPU to use.
#include <cuda_runtime_api.h>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_memory.h"
#include "tests/cuda/emulated_world.h"

namespace deltad {
namespace {

using CudaDeviceTest = testing::EmulatedGpuTest;

TEST_F(CudaDeviceTest, ADriverThatIsTooOldIsNamed) {
  emulated_gpu::inject({0, cudaErrorInsufficientDriver});
  const auto device = CudaDevice::open(0);
  ASSERT_EQ(device.status().code(), Code::kUnavailable);
  EXPECT_NE(device.status().message().find(
                "the NVIDIA driver is one for CUDA 13.0, and this program needs 13.0 or later"),
            std::string::npos)
      << device.status().message();
}

TEST_F(CudaDeviceTest, AGpuThatIsNotThereIsNamed) {
  const auto device = CudaDevice::open(3);
  ASSERT_EQ(device.status().code(), Code::kUnavailable);
  EXPECT_EQ(device.status().message(), "there is no CUDA device 3: 1 found");
}

TEST_F(CudaDeviceTest, AStepThatIsLateFailsTheLoadsThatWaitForItAndNoMore) {
  auto device = std::move(*CudaDevice::open(0, std::chrono::milliseconds(300)));
  auto memory = std::move(*DeviceMemory::make(*device, device->compute(), 64, "a test"));
  emulated_gpu::inject({.call = emulated_gpu::call_count(), .error = 0, .hangs = true});
  ASSERT_EQ(cudaMemsetAsync(memory.data(), 1, 64, device->compute()), cudaSuccess);
  ASSERT_TRUE(device->step_ended().ok());
  ASSERT_TRUE(device->order_after_steps(device->load()).ok());
  const auto wait = [&] {
    return device->await([&] { return cudaStreamQuery(device->load()); }, "cudaStreamQuery",
                         "waiting for a load");
  };
  const Status late = wait();
  EXPECT_EQ(late.code(), Code::kUnavailable);
  EXPECT_EQ(
      late.message(),
      "GPU 0 is at a step: it did not get to the end of its work for 0.3 s, while waiting for "
      "a load");
  EXPECT_TRUE(device->health().ok());
  emulated_gpu::let_go();
  EXPECT_TRUE(wait().ok());
}

// The program's second image has the same kernels as the first.
class CudaImages : public testing::EmulatedGpuTest {
 protected:
  // The number of the first call of that name when a backend is made.
  static size_t first(const std::string& name) {
    emulated_gpu::reset();
    EXPECT_TRUE(make_cuda_backend({0, 1}).ok());
    const auto calls = emulated_gpu::calls();
    size_t k = 0;
    while (k < calls.size() && calls[k].name != name) ++k;
    EXPECT_LT(k, calls.size()) << name;
    emulated_gpu::reset();
    return k;
  }
};

TEST_F(CudaImages, ThatAreForOtherGpusArePassedOver) {
  for (const char* name : {"cudaLibraryLoadData", "cudaLibraryGetKernel", "cudaFuncGetAttributes"})
    for (const cudaError_t error :
         {cudaErrorNoKernelImageForDevice, cudaErrorInvalidDeviceFunction}) {
      SCOPED_TRACE(name);
      emulated_gpu::inject({first(name), error});
      const auto backend = make_cuda_backend({0, 1});
      EXPECT_TRUE(backend.ok()) << backend.status().message();
    }
}

TEST_F(CudaImages, WithoutAKernelForTheGpuAreNamed) {
  const size_t k = first("cudaLibraryGetKernel");
  emulated_gpu::inject({k, cudaErrorNoKernelImageForDevice});
  emulated_gpu::inject({k + 1, cudaErrorNoKernelImageForDevice});
  const auto backend = make_cuda_backend({0, 1});
  ASSERT_EQ(backend.status().code(), Code::kUnimplemented);
  EXPECT_EQ(backend.status().message().find("this program has no kernel deltad_"), 0u)
      << backend.status().message();
  EXPECT_NE(backend.status().message().find("compute capability"), std::string::npos);
}

TEST_F(CudaImages, ThatCannotBeReadAreAnError) {
  emulated_gpu::inject({first("cudaLibraryGetKernel"), cudaErrorMemoryAllocation});
  const auto backend = make_cuda_backend({0, 1});
  ASSERT_EQ(backend.status().code(), Code::kResourceExhausted);
  EXPECT_NE(backend.status().message().find("looking for deltad_"), std::string::npos)
      << backend.status().message();
}

}  // namespace
}  // namespace deltad
