// What is said where there is no GPU to use.
#include <cuda_runtime_api.h>

#include "backend/cuda/cuda_device.h"
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

}  // namespace
}  // namespace deltad
