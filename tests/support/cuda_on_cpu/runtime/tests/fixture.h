// What tests of the emulated GPU share: kernels to launch, and owners of what they make.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/cuda_on_cpu/runtime/emulated_gpu.h"

namespace deltad::emulated_gpu {

// out[i] = in[i] * factor + add. One block; all of in is read before any of out is written.
struct ScaleParams {
  const int32_t* in;
  int32_t* out;
  int32_t count, factor, add;
};
constexpr char kScaleKernel[] = "test_scale";
// The same, but it reads before it waits for the kernel before.
constexpr char kEarlyKernel[] = "test_early";
// out[i] = *in[i]; the pointers lie in device memory too.
struct GatherParams {
  const int32_t* const* in;
  int32_t* out;
  int32_t count;
};
constexpr char kGatherKernel[] = "test_gather";

#define ASSERT_CUDA(call) ASSERT_EQ(call, cudaSuccess)

class GpuTest : public testing::Test {
 protected:
  GpuTest() { start({}); }
  // Nothing is left, and nothing was found that the test did not expect.
  ~GpuTest() override;

  void start(const Options& options);
  // The kinds of the faults so far; they are expected then.
  std::vector<FaultKind> expected_faults();

  cudaStream_t stream();  // a new one, of the current device, that blocks nothing
  cudaEvent_t event();
  int32_t* device_array(size_t count);
  int32_t* pinned_array(size_t count);
  // The array's values, once all work is over.
  std::vector<int32_t> values(const int32_t* device, size_t count);
  // Frees all of the above, with nothing under way.
  void release();

  cudaError_t launch(const char* kernel, const void* params, cudaStream_t stream,
                     bool overlaps = false);
  cudaError_t scale(const int32_t* in, int32_t* out, int32_t count, int32_t factor, int32_t add,
                    cudaStream_t stream, bool overlaps = false);

 private:
  cudaLibrary_t library_ = nullptr;
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> events_;
  std::vector<void*> device_, pinned_;
  bool faults_expected_ = false;
};

// Each order, and some seeds of the random one.
std::vector<Options> all_orders();

}  // namespace deltad::emulated_gpu
