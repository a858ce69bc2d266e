// Streams and events: right programs give the same in every order, and what orders them is missed
// where it is left out.
#include <numeric>

#include "tests/support/cuda_on_cpu/runtime/tests/fixture.h"

namespace deltad::emulated_gpu {
namespace {

constexpr int32_t kCount = 100;
constexpr size_t kBytes = kCount * sizeof(int32_t);

class Ordering : public GpuTest, public testing::WithParamInterface<size_t> {
 protected:
  Ordering() { start(all_orders()[GetParam()]); }

  // Copies in on one stream, computes on another, copies out on a third; again and again, with the
  // same buffers.
  void pipeline(std::vector<int32_t>* result) {
    const cudaStream_t in = stream(), compute = stream(), out = stream();
    const cudaEvent_t came = event(), computed = event(), taken = event();
    int32_t* source = pinned_array(kCount);
    int32_t* target = pinned_array(kCount);
    int32_t *a = device_array(kCount), *b = device_array(kCount);
    for (int32_t round = 0; round < 3; ++round) {
      ASSERT_CUDA(cudaEventSynchronize(came));  // the buffer was read
      std::iota(source, source + kCount, 1000 * round);
      ASSERT_CUDA(cudaStreamWaitEvent(in, computed));  // a was used
      ASSERT_CUDA(cudaMemcpyAsync(a, source, kBytes, cudaMemcpyHostToDevice, in));
      ASSERT_CUDA(cudaEventRecord(came, in));
      ASSERT_CUDA(cudaStreamWaitEvent(compute, came));
      ASSERT_CUDA(cudaStreamWaitEvent(compute, taken));  // b was copied
      ASSERT_CUDA(scale(a, b, kCount, 2, 1, compute));
      ASSERT_CUDA(cudaEventRecord(computed, compute));
      ASSERT_CUDA(cudaStreamWaitEvent(out, computed));
      ASSERT_CUDA(cudaMemcpyAsync(target, b, kBytes, cudaMemcpyDeviceToHost, out));
      ASSERT_CUDA(cudaEventRecord(taken, out));
      ASSERT_CUDA(cudaStreamSynchronize(out));
      result->insert(result->end(), target, target + kCount);
    }
  }
  static std::vector<int32_t> right() {
    std::vector<int32_t> all;
    for (int32_t round = 0; round < 3; ++round) {
      for (int32_t i = 0; i < kCount; ++i) all.push_back(2 * (1000 * round + i) + 1);
    }
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(All, Ordering, testing::Range<size_t>(0, all_orders().size()));

TEST_P(Ordering, ARightProgramIsRight) {
  std::vector<int32_t> result;
  pipeline(&result);
  EXPECT_EQ(result, right());
}

TEST_P(Ordering, EveryOrderingThatIsLeftOutIsMissed) {
  std::vector<SyncSite> sites;
  std::vector<std::string> caught;
  // First with all of them, then without one: from one place, so that the sites are the same.
  for (size_t i = 0; i <= sites.size(); ++i) {
    start(all_orders()[GetParam()]);
    if (i > 0) switch_off(sites[i - 1].key);
    std::vector<int32_t> result;
    pipeline(&result);
    const bool wrong = !report().empty() || result != right();
    if (i > 0) {
      caught.push_back(sites[i - 1].call + (wrong ? "" : ": implied by others"));
      continue;
    }
    ASSERT_FALSE(wrong) << report();
    sites = sync_sites();
  }
  start({});
  // As a round ends only when its last copy is over, waits for the round before are implied. Where
  // work runs at once, the host finds the result without a wait.
  const bool eager = all_orders()[GetParam()].order == Order::kEager;
  EXPECT_EQ(caught,
            (std::vector<std::string>{
                "cudaEventSynchronize: implied by others", "cudaStreamWaitEvent: implied by others",
                "cudaEventRecord", "cudaStreamWaitEvent", "cudaStreamWaitEvent: implied by others",
                "cudaEventRecord", "cudaStreamWaitEvent", "cudaEventRecord: implied by others",
                eager ? "cudaStreamSynchronize: implied by others" : "cudaStreamSynchronize"}));
}

TEST_F(GpuTest, AQuestionInALoopIsAnsweredInTheEnd) {
  for (const Options& options : all_orders()) {
    start(options);
    const cudaStream_t a = stream(), b = stream();
    const cudaEvent_t done = event();
    int32_t* x = device_array(kCount);
    ASSERT_CUDA(cudaMemsetAsync(x, 0, kBytes, a));
    for (int i = 0; i < 10; ++i) ASSERT_CUDA(scale(x, x, kCount, 1, 1, a));
    ASSERT_CUDA(cudaEventRecord(done, a));
    ASSERT_CUDA(cudaStreamWaitEvent(b, done));
    int asked = 0;
    while (cudaStreamQuery(b) == cudaErrorNotReady) ASSERT_LT(++asked, 100);
    EXPECT_EQ(asked == 0, options.order == Order::kEager) << asked;
    EXPECT_EQ(values(x, kCount)[0], 10);
  }
}

// A stream that is destroyed ends its work first.
TEST_F(GpuTest, WorkOfADestroyedStreamGoesOn) {
  cudaStream_t gone = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking));
  int32_t* x = device_array(1);
  ASSERT_CUDA(cudaMemsetAsync(x, 1, 4, gone));
  ASSERT_CUDA(cudaStreamDestroy(gone));
  EXPECT_EQ(values(x, 1)[0], 0x01010101);
}

// A kernel on the other stream, without a wait.
TEST_F(GpuTest, ARaceIsFoundWhicheverRunsFirst) {
  for (const Options& options : all_orders()) {
    start(options);
    const cudaStream_t a = stream(), b = stream();
    int32_t *x = device_array(kCount), *y = device_array(kCount);
    ASSERT_CUDA(cudaMemset(x, 0, kBytes));
    ASSERT_CUDA(cudaDeviceSynchronize());
    ASSERT_CUDA(scale(x, y, kCount, 1, 1, a));
    ASSERT_CUDA(scale(y + 50, x, 1, 1, 1, b));
    ASSERT_CUDA(cudaDeviceSynchronize());
    // y[50], and x[0].
    EXPECT_EQ(expected_faults(), (std::vector<FaultKind>{FaultKind::kRace, FaultKind::kRace}))
        << report();
  }
}

TEST_F(GpuTest, BytesSideBySideAreNoRace) {
  for (const Options& options : all_orders()) {
    start(options);
    const cudaStream_t a = stream(), b = stream();
    int32_t *x = device_array(kCount), *y = device_array(kCount);
    ASSERT_CUDA(cudaMemset(x, 0, kBytes));
    ASSERT_CUDA(cudaDeviceSynchronize());
    ASSERT_CUDA(scale(x, y, 49, 1, 1, a));
    ASSERT_CUDA(scale(x, y + 49, kCount - 49, 1, 2, b));
    const std::vector<int32_t> result = values(y, kCount);
    EXPECT_EQ(result[48], 1);
    EXPECT_EQ(result[49], 2);
  }
}

TEST_F(GpuTest, WhatAPointerInDeviceMemoryLeadsToIsSeen) {
  const cudaStream_t a = stream(), b = stream();
  int32_t *x = device_array(kCount), *y = device_array(1);
  void* table = nullptr;
  ASSERT_CUDA(cudaMalloc(&table, sizeof(void*)));
  const int32_t* entry = x + 7;
  ASSERT_CUDA(cudaMemcpy(table, &entry, sizeof entry, cudaMemcpyHostToDevice));
  ASSERT_CUDA(cudaMemsetAsync(x, 0, kBytes, a));
  const GatherParams params = {static_cast<const int32_t* const*>(table), y, 1};
  ASSERT_CUDA(launch(kGatherKernel, &params, b));
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kRace});
}

TEST_F(GpuTest, AKernelThatOverlapsMustWaitBeforeItReadsWhatTheOneBeforeWrites) {
  for (const bool early : {false, true}) {
    start({});
    const cudaStream_t a = stream();
    int32_t *x = device_array(1), *y = device_array(1), *z = device_array(1);
    ASSERT_CUDA(cudaMemset(x, 0, sizeof *x));
    ASSERT_CUDA(cudaDeviceSynchronize());
    ASSERT_CUDA(scale(x, y, 1, 1, 1, a, true));
    ASSERT_CUDA(scale(x, z, 1, 1, 2, a, true));
    // What the last but one wrote is there.
    const ScaleParams params = {early ? z : y, x, 1, 1, 0};
    ASSERT_CUDA(launch(kEarlyKernel, &params, a, true));
    ASSERT_CUDA(cudaDeviceSynchronize());
    if (!early) {
      EXPECT_EQ(report(), "");
    }
  }
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kRace});
}

void set(void* flag) { *static_cast<bool*>(flag) = true; }

TEST_F(GpuTest, HostFunctionsRunInTheirStream) {
  for (const Options& options : all_orders()) {
    start(options);
    const cudaStream_t a = stream();
    int32_t* x = device_array(1);
    int32_t* y = pinned_array(1);
    bool done = false;
    ASSERT_CUDA(cudaMemsetAsync(x, 0, sizeof *x, a));
    ASSERT_CUDA(cudaLaunchHostFunc(a, set, &done));
    ASSERT_CUDA(cudaMemcpyAsync(y, x, sizeof *x, cudaMemcpyDeviceToHost, a));
    ASSERT_CUDA(cudaStreamSynchronize(a));
    EXPECT_TRUE(done);
    EXPECT_EQ(*y, 0);
  }
}

TEST_F(GpuTest, TheNullStreamWaitsForBlockingOnes) {
  cudaStream_t blocking = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault));
  int32_t* x = device_array(1);
  ASSERT_CUDA(cudaMemsetAsync(x, 0, sizeof *x, blocking));
  int32_t y = 7;
  ASSERT_CUDA(cudaMemcpy(&y, x, sizeof y, cudaMemcpyDeviceToHost));
  EXPECT_EQ(y, 0);
  ASSERT_CUDA(cudaStreamDestroy(blocking));
}

}  // namespace
}  // namespace deltad::emulated_gpu
