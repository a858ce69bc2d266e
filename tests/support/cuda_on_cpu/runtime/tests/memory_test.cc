// Memory: what is freed, what lies outside, pinned and ordinary memory of the host, limits.
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "tests/support/cuda_on_cpu/runtime/tests/fixture.h"

namespace deltad::emulated_gpu {
namespace {

constexpr int32_t kCount = 100;
constexpr size_t kBytes = kCount * sizeof(int32_t);

using MemoryDeathTest = GpuTest;

TEST_F(MemoryDeathTest, TheHostCannotTouchDeviceMemory) {
  volatile int32_t* x = device_array(1);
  EXPECT_DEATH(static_cast<void>(*x), "the host touches memory of device 00");
  EXPECT_DEATH(*x = 1, "the host touches memory of device 00");
}

TEST_F(MemoryDeathTest, TheHostCannotTouchFreedPinnedMemory) {
  void* x = nullptr;
  ASSERT_CUDA(cudaMallocHost(&x, 4));
  *static_cast<volatile int32_t*>(x) = 1;
  ASSERT_CUDA(cudaFreeHost(x));
  EXPECT_DEATH(*static_cast<volatile int32_t*>(x) = 1, "");
}

TEST_F(GpuTest, BytesAreCountedAndLimited) {
  start({.memory_bytes = 1000});
  void *a = nullptr, *b = nullptr;
  ASSERT_CUDA(cudaMalloc(&a, 600));
  EXPECT_EQ(cudaMalloc(&b, 401), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  ASSERT_CUDA(cudaMalloc(&b, 400));
  EXPECT_EQ(allocated_bytes(), 1000u);
  size_t left = 1, total = 0;
  ASSERT_CUDA(cudaMemGetInfo(&left, &total));
  EXPECT_EQ(left, 0u);
  EXPECT_EQ(total, 1000u);
  ASSERT_CUDA(cudaFree(a));
  EXPECT_EQ(allocated_bytes(), 400u);
  EXPECT_NE(leaks().find("400 bytes"), std::string::npos) << leaks();
  ASSERT_CUDA(cudaFree(b));
  EXPECT_EQ(peak_bytes(), 1000u);
}

TEST_F(GpuTest, FreeingTwiceOrInTheMiddleIsFound) {
  int32_t* x = device_array(kCount);
  EXPECT_EQ(cudaFree(x + 1), cudaErrorInvalidValue);
  ASSERT_CUDA(cudaFree(x));
  EXPECT_EQ(cudaFree(x), cudaErrorInvalidValue);
  EXPECT_EQ(expected_faults(), (std::vector<FaultKind>{FaultKind::kFreed, FaultKind::kFreed}));
}

TEST_F(GpuTest, FreeingWhatIsInUseIsFound) {
  for (const Options& options : all_orders()) {
    start(options);
    const cudaStream_t a = stream();
    void* x = nullptr;
    ASSERT_CUDA(cudaMalloc(&x, kBytes));
    ASSERT_CUDA(cudaMemsetAsync(x, 0, kBytes, a));
    cudaFree(x);
    cudaDeviceSynchronize();
    // And once more where the work runs only now.
    EXPECT_THAT(expected_faults(), testing::Each(FaultKind::kFreed)) << report();
    EXPECT_FALSE(faults().empty());
  }
}

// Though neither has run.
TEST_F(GpuTest, FreeingWhatPendingWorkNamesIsFound) {
  const cudaStream_t a = stream();
  void *x = nullptr, *y = nullptr;
  ASSERT_CUDA(cudaMalloc(&x, 4));
  ASSERT_CUDA(cudaMalloc(&y, 4));
  int32_t* out = device_array(1);
  ASSERT_CUDA(scale(static_cast<int32_t*>(x), out, 0, 1, 1, a));
  ASSERT_CUDA(cudaMemsetAsync(y, 0, 4, a));
  ASSERT_CUDA(cudaFree(x));
  ASSERT_CUDA(cudaFree(y));
  EXPECT_EQ(expected_faults(), (std::vector<FaultKind>{FaultKind::kFreed, FaultKind::kFreed}));
}

TEST_F(GpuTest, AKernelThatUsesFreedMemoryIsFound) {
  const cudaStream_t a = stream();
  int32_t *x = device_array(kCount), *y = device_array(kCount);
  ASSERT_CUDA(cudaFree(x));
  ASSERT_CUDA(scale(x, y, 1, 1, 1, a));
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&x), 1), cudaErrorIllegalAddress) << "it sticks";
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kKernel});
  EXPECT_NE(report().find("freed"), std::string::npos) << report();
}

TEST_F(GpuTest, FreeingInAStreamsOrderIsRight) {
  for (const Options& options : all_orders()) {
    start(options);
    const cudaStream_t a = stream(), b = stream();
    const cudaEvent_t used = event();
    int32_t* out = device_array(kCount);
    void* x = nullptr;
    ASSERT_CUDA(cudaMallocAsync(&x, kBytes, a));
    ASSERT_CUDA(cudaMemsetAsync(x, 1, kBytes, a));
    ASSERT_CUDA(scale(static_cast<int32_t*>(x), out, kCount, 1, 0, a));
    ASSERT_CUDA(cudaEventRecord(used, a));
    ASSERT_CUDA(cudaStreamWaitEvent(b, used));
    ASSERT_CUDA(cudaFreeAsync(x, b));
    EXPECT_EQ(allocated_bytes(), kBytes);
    EXPECT_EQ(values(out, kCount)[0], 0x01010101);
  }
}

TEST_F(GpuTest, FreeingInAnotherStreamsOrderIsFound) {
  for (const Options& options : all_orders()) {
    start(options);
    const cudaStream_t a = stream(), b = stream();
    void* x = nullptr;
    ASSERT_CUDA(cudaMallocAsync(&x, kBytes, a));
    ASSERT_CUDA(cudaMemsetAsync(x, 1, kBytes, a));
    ASSERT_CUDA(cudaFreeAsync(x, b));
    cudaDeviceSynchronize();
    EXPECT_THAT(expected_faults(), testing::Each(FaultKind::kFreed)) << report();
    EXPECT_FALSE(faults().empty());
  }
}

TEST_F(GpuTest, CopiesBeyondAnAllocationAreFound) {
  const cudaStream_t a = stream();
  int32_t* x = device_array(kCount);
  int32_t* y = pinned_array(kCount);
  EXPECT_EQ(cudaMemcpyAsync(x + 1, y, kBytes, cudaMemcpyHostToDevice, a), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(x, y + 1, kBytes, cudaMemcpyHostToDevice, a), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(x, 0, kBytes + 1, a), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(x, y, kBytes, cudaMemcpyDeviceToHost, a),
            cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(expected_faults(), (std::vector<FaultKind>{FaultKind::kBounds, FaultKind::kBounds,
                                                       FaultKind::kBounds, FaultKind::kMisuse}));
}

TEST_F(GpuTest, OrdinaryMemoryIsReadAtOnce) {
  for (const Options& options : all_orders()) {
    start(options);
    const cudaStream_t a = stream();
    int32_t* x = device_array(kCount);
    std::vector<int32_t> source(kCount, 5);
    ASSERT_CUDA(cudaMemcpyAsync(x, source.data(), kBytes, cudaMemcpyHostToDevice, a));
    std::fill(source.begin(), source.end(), 6);
    EXPECT_EQ(values(x, kCount)[0], 5);
  }
}

TEST_F(GpuTest, OrdinaryMemoryCanBeForbidden) {
  start({.pageable_is_fault = true});
  const cudaStream_t a = stream();
  int32_t source = 1;
  ASSERT_CUDA(cudaMemcpyAsync(device_array(1), &source, 4, cudaMemcpyHostToDevice, a));
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kMisuse});
}

TEST_F(GpuTest, WritingToAPinnedSourceTooEarlyIsFound) {
  for (const Options& options : all_orders()) {
    start(options);
    const cudaStream_t a = stream();
    int32_t* x = device_array(kCount);
    int32_t* source = pinned_array(kCount);
    std::iota(source, source + kCount, 0);
    ASSERT_CUDA(cudaMemcpyAsync(x, source, kBytes, cudaMemcpyHostToDevice, a));
    source[50] = 7;  // nobody said that the copy is over, even where it is
    ASSERT_CUDA(cudaMemcpyAsync(x, source, kBytes, cudaMemcpyHostToDevice, a));
    ASSERT_CUDA(cudaStreamSynchronize(a));
    ASSERT_FALSE(faults().empty());
    EXPECT_EQ(expected_faults()[0], FaultKind::kPinnedMemory);
  }
}

TEST_F(GpuTest, ReadingAPinnedTargetTooEarlyGivesPoison) {
  const cudaStream_t a = stream();
  int32_t* x = device_array(kCount);
  int32_t* target = pinned_array(kCount);
  std::fill(target, target + kCount, 3);
  ASSERT_CUDA(cudaMemsetAsync(x, 0, kBytes, a));
  ASSERT_CUDA(cudaMemcpyAsync(target, x, kBytes, cudaMemcpyDeviceToHost, a));
  EXPECT_EQ(target[0], -1);
  ASSERT_CUDA(cudaStreamSynchronize(a));
  EXPECT_EQ(target[0], 0);
}

// Out and in again, and out twice: the host is not at it.
TEST_F(GpuTest, APinnedBufferMayBeUsedAgainInAStreamsOrder) {
  for (const Options& options : all_orders()) {
    start(options);
    const cudaStream_t a = stream();
    int32_t *x = device_array(kCount), *y = device_array(kCount);
    int32_t* between = pinned_array(kCount);
    ASSERT_CUDA(cudaMemsetAsync(x, 2, kBytes, a));
    ASSERT_CUDA(cudaMemcpyAsync(between, x, kBytes, cudaMemcpyDeviceToHost, a));
    ASSERT_CUDA(cudaMemcpyAsync(y, between, kBytes, cudaMemcpyHostToDevice, a));
    ASSERT_CUDA(cudaMemsetAsync(x, 3, kBytes, a));
    ASSERT_CUDA(cudaMemcpyAsync(between, x, kBytes, cudaMemcpyDeviceToHost, a));
    ASSERT_CUDA(cudaMemcpyAsync(x, between, kBytes, cudaMemcpyHostToDevice, a));
    EXPECT_EQ(values(y, kCount)[0], 0x02020202);
    EXPECT_EQ(values(x, kCount)[0], 0x03030303);
    between[0] = 0;
  }
}

TEST_F(GpuTest, FreeingAPinnedBufferInUseIsFound) {
  const cudaStream_t a = stream();
  int32_t* x = device_array(1);
  void* source = nullptr;
  ASSERT_CUDA(cudaMallocHost(&source, 4));
  ASSERT_CUDA(cudaMemcpyAsync(x, source, 4, cudaMemcpyHostToDevice, a));
  ASSERT_CUDA(cudaFreeHost(source));
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kFreed});
}

TEST_F(GpuTest, RegisteredMemoryIsPinned) {
  std::vector<int32_t> memory(kCount, 1);
  const cudaStream_t a = stream();
  int32_t* x = device_array(kCount);
  ASSERT_CUDA(cudaHostRegister(memory.data(), kBytes, cudaHostRegisterDefault));
  EXPECT_EQ(cudaHostRegister(memory.data() + 1, 4, cudaHostRegisterDefault),
            cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(pinned_bytes(), kBytes);
  ASSERT_CUDA(cudaMemcpyAsync(x, memory.data(), kBytes, cudaMemcpyHostToDevice, a));
  memory[0] = 2;
  ASSERT_CUDA(cudaStreamSynchronize(a));
  ASSERT_CUDA(cudaHostUnregister(memory.data()));
  EXPECT_EQ(pinned_bytes(), 0u);
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kPinnedMemory});
}

TEST_F(GpuTest, KernelsReadPinnedMemoryOnlyWhereItIsMapped) {
  for (const bool mapped : {true, false}) {
    start({});
    const cudaStream_t a = stream();
    void* source = nullptr;
    ASSERT_CUDA(cudaHostAlloc(&source, 4, mapped ? cudaHostAllocMapped : cudaHostAllocDefault));
    *static_cast<int32_t*>(source) = 41;
    int32_t* x = device_array(1);
    ASSERT_CUDA(scale(static_cast<int32_t*>(source), x, 1, 1, 1, a));
    EXPECT_EQ(cudaStreamSynchronize(a), mapped ? cudaSuccess : cudaErrorIllegalAddress);
    if (mapped) {
      EXPECT_EQ(values(x, 1)[0], 42);
      ASSERT_CUDA(cudaFreeHost(source));
    }
  }
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kKernel});
}

}  // namespace
}  // namespace deltad::emulated_gpu
