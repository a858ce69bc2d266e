// Launches: what is refused, what a kernel does wrong, and kernels of kernels/cuda by name.
#include "kernels/cuda/gather_rows.h"
#include "tests/support/cuda_on_cpu/runtime/tests/fixture.h"

namespace deltad::emulated_gpu {
namespace {

class Launches : public GpuTest {
 protected:
  Launches() {
    EXPECT_EQ(cudaLibraryLoadData(&library_, "image", nullptr, nullptr, 0, nullptr, nullptr, 0),
              cudaSuccess);
    EXPECT_EQ(cudaLibraryGetKernel(&kernel_, library_, kScaleKernel), cudaSuccess);
  }
  cudaError_t launch_shape(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    ScaleParams params = {in_, out_, 1, 1, 1};
    void* args[] = {&params};
    const cudaLaunchConfig_t config = {grid, block, shared, stream, nullptr, 0};
    return cudaLaunchKernelExC(&config, kernel_, args);
  }
  void end() { ASSERT_CUDA(cudaLibraryUnload(library_)); }

  cudaLibrary_t library_ = nullptr;
  cudaKernel_t kernel_ = nullptr;
  int32_t* in_ = device_array(1);
  int32_t* out_ = device_array(1);
};

TEST_F(Launches, AreChecked) {
  const cudaStream_t a = stream();
  ASSERT_CUDA(cudaMemset(in_, 0, 4));
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_CUDA(launch_shape(1, 32, 48 << 10, a));
  EXPECT_EQ(launch_shape(1, 32, (48 << 10) + 1, a), cudaErrorInvalidValue);
  ASSERT_CUDA(cudaFuncSetAttribute(kernel_, cudaFuncAttributeMaxDynamicSharedMemorySize, 99 << 10));
  ASSERT_CUDA(launch_shape(1, 32, 99 << 10, a));
  EXPECT_EQ(
      cudaFuncSetAttribute(kernel_, cudaFuncAttributeMaxDynamicSharedMemorySize, (227 << 10) + 1),
      cudaErrorInvalidValue);
  EXPECT_EQ(launch_shape(1, 33, 0, a), cudaErrorInvalidValue) << "launch bounds";
  EXPECT_EQ(launch_shape(0, 32, 0, a), cudaErrorInvalidValue);
  EXPECT_EQ(launch_shape({1, 65536}, 32, 0, a), cudaErrorInvalidValue);
  cudaFuncAttributes attributes;
  ASSERT_CUDA(cudaFuncGetAttributes(&attributes, kernel_));
  EXPECT_EQ(attributes.maxDynamicSharedSizeBytes, 99 << 10);
  EXPECT_EQ(attributes.maxThreadsPerBlock, 32);
  cudaKernel_t other = nullptr;
  EXPECT_EQ(cudaLibraryGetKernel(&other, library_, "no_such_kernel"), cudaErrorSymbolNotFound);
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>(4, FaultKind::kMisuse));
}

TEST_F(Launches, ClustersAreChecked) {
  const cudaStream_t a = stream();
  ASSERT_CUDA(cudaMemset(in_, 0, 4));
  ASSERT_CUDA(cudaDeviceSynchronize());
  const auto launch_clusters = [&](dim3 grid, dim3 cluster) {
    ScaleParams params = {in_, out_, 0, 1, 1};
    void* args[] = {&params};
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {cluster.x, cluster.y, cluster.z};
    const cudaLaunchConfig_t config = {grid, 32, 0, a, &attribute, 1};
    return cudaLaunchKernelExC(&config, kernel_, args);
  };
  const size_t before = launches().size();
  ASSERT_CUDA(launch_clusters({3, 4}, {1, 2}));
  ASSERT_CUDA(cudaStreamSynchronize(a));
  ASSERT_EQ(launches().size(), before + 1);
  EXPECT_TRUE(launches().back().ends_with(" cluster 1x2x1")) << launches().back();
  EXPECT_EQ(launch_clusters({3, 4}, {2, 1}), cudaErrorInvalidValue) << "no multiple";
  EXPECT_EQ(launch_clusters({3, 4}, {1, 0}), cudaErrorInvalidValue);
  EXPECT_EQ(launch_clusters({4, 4}, {4, 4}), cudaErrorInvalidValue) << "more than eight blocks";
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>(3, FaultKind::kMisuse));
}

TEST_F(Launches, OutOfBoundsIsAFaultThatSticks) {
  const cudaStream_t a = stream();
  const ScaleParams params = {in_, out_, 2, 1, 1};
  ASSERT_CUDA(launch(kScaleKernel, &params, a));
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamQuery(a), cudaErrorIllegalAddress);
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kKernel});
}

TEST_F(Launches, OrdinaryMemoryIsNotForKernels) {
  const cudaStream_t a = stream();
  const int32_t ordinary = 1;
  const ScaleParams params = {&ordinary, out_, 1, 1, 1};
  ASSERT_CUDA(launch(kScaleKernel, &params, a));
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorIllegalAddress);
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kKernel});
}

TEST_F(Launches, KernelsOfTheProjectAreFoundByName) {
  const cudaStream_t a = stream();
  int32_t* rows = device_array(1);
  int32_t *x = device_array(8), *out = device_array(4);
  ASSERT_CUDA(cudaMemsetAsync(rows, 0, 4, a));
  ASSERT_CUDA(cudaMemsetAsync(x, 1, 32, a));
  cuda::GatherRowsParams params = {};
  params.x = reinterpret_cast<const float*>(x);
  params.rows = rows;
  params.out = reinterpret_cast<float*>(out);
  params.x_stride = params.out_stride = params.columns = 4;
  params.count = 1;
  const cuda::Launch shape = cuda::gather_rows_launch(params);
  cudaKernel_t gather = nullptr;
  ASSERT_CUDA(cudaLibraryGetKernel(&gather, library_, cuda::kGatherRowsKernel));
  const cudaLaunchConfig_t config = {{shape.grid.x}, {shape.block.x}, 0, a, nullptr, 0};
  void* args[] = {&params};
  ASSERT_CUDA(cudaLaunchKernelExC(&config, gather, args));
  EXPECT_EQ(values(out, 4), std::vector<int32_t>(4, 0x01010101));
  end();
}

}  // namespace
}  // namespace deltad::emulated_gpu
