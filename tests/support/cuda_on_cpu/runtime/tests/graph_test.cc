// Graphs: captured from one or several streams, launched, updated; what a capture does not allow.
#include <algorithm>
#include <functional>
#include <thread>

#include "tests/support/cuda_on_cpu/runtime/tests/fixture.h"

namespace deltad::emulated_gpu {
namespace {

constexpr int32_t kCount = 100;
constexpr size_t kBytes = kCount * sizeof(int32_t);

class Graphs : public GpuTest {
 public:
  // x = x · factor + 1, and on another stream beside it y = 2; then z = x + 0. `join`: waits for
  // the other stream at the end.
  cudaError_t capture(int32_t factor, bool join, cudaGraph_t* graph) {
    EXPECT_EQ(cudaStreamBeginCapture(main_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(fork_, main_), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(side_, fork_), cudaSuccess);
    EXPECT_EQ(scale(x_, x_, kCount, factor, 1, main_), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(y_, 2, kBytes, side_), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(joined_, side_), cudaSuccess);
    if (join) {
      EXPECT_EQ(cudaStreamWaitEvent(main_, joined_), cudaSuccess);
    }
    EXPECT_EQ(scale(x_, z_, kCount, 1, 0, main_), cudaSuccess);
    return cudaStreamEndCapture(main_, graph);
  }
  void set_up(const Options& options) {
    start(options);
    main_ = stream(), side_ = stream();
    fork_ = event(), joined_ = event();
    x_ = device_array(kCount), y_ = device_array(kCount), z_ = device_array(kCount);
    ASSERT_CUDA(cudaMemsetAsync(x_, 0, kBytes, main_));
  }

  cudaStream_t main_ = nullptr, side_ = nullptr;
  cudaEvent_t fork_ = nullptr, joined_ = nullptr;
  int32_t *x_ = nullptr, *y_ = nullptr, *z_ = nullptr;
};

TEST_F(Graphs, RunAsTheStreamsWould) {
  for (const Options& options : all_orders()) {
    set_up(options);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    ASSERT_CUDA(capture(2, true, &graph));
    ASSERT_CUDA(cudaGraphInstantiate(&exec, graph));
    ASSERT_CUDA(cudaGraphDestroy(graph));
    for (int i = 0; i < 3; ++i) ASSERT_CUDA(cudaGraphLaunch(exec, main_));
    ASSERT_CUDA(scale(y_, x_, 1, 1, 0, main_));  // after all of the graph
    EXPECT_EQ(values(z_, kCount)[5], 7);
    EXPECT_EQ(values(x_, kCount)[0], 0x02020202);
    ASSERT_CUDA(cudaGraphExecDestroy(exec));
  }
}

TEST_F(Graphs, TakeMemoryForEachNode) {
  set_up({});
  const size_t before = allocated_bytes();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(capture(2, true, &graph));
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph));
  EXPECT_EQ(allocated_bytes(), before + 3 * 1024);
  ASSERT_CUDA(cudaGraphExecDestroy(exec));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  EXPECT_EQ(allocated_bytes(), before);
}

// Work that a test puts on another stream than its own is found.
TEST_F(Graphs, WorkOnAnotherStreamIsFound) {
  set_up({.order = Order::kEager, .site_frames = 1});
  ASSERT_CUDA(scale(x_, z_, kCount, 1, 0, main_));  // names the site
  ASSERT_CUDA(cudaStreamSynchronize(main_));
  const auto sites = work_sites();
  const auto kernel = std::find_if(sites.begin(), sites.end(), [](const WorkSite& site) {
    return site.text.starts_with(kScaleKernel);
  });
  ASSERT_NE(kernel, sites.end());
  misplace(kernel->key);
  ASSERT_CUDA(cudaMemsetAsync(x_, 1, kBytes, main_));
  ASSERT_CUDA(scale(x_, z_, kCount, 1, 0, main_));
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kRace});
}

TEST_F(Graphs, AnUpdateIsForLaunchesToCome) {
  for (const Options& options : all_orders()) {
    set_up(options);
    cudaGraph_t graph = nullptr, other = nullptr;
    cudaGraphExec_t exec = nullptr;
    ASSERT_CUDA(capture(2, true, &graph));
    ASSERT_CUDA(capture(3, true, &other));
    ASSERT_CUDA(cudaGraphInstantiate(&exec, graph));
    ASSERT_CUDA(cudaGraphLaunch(exec, main_));  // 1
    ASSERT_CUDA(cudaGraphLaunch(exec, main_));  // 3
    cudaGraphExecUpdateResultInfo info;
    ASSERT_CUDA(cudaGraphExecUpdate(exec, other, &info));
    EXPECT_EQ(info.result, cudaGraphExecUpdateSuccess);
    ASSERT_CUDA(cudaGraphLaunch(exec, main_));
    EXPECT_EQ(values(z_, kCount)[5], 10);
    cudaGraph_t shorter = nullptr;
    ASSERT_CUDA(cudaStreamBeginCapture(main_, cudaStreamCaptureModeThreadLocal));
    ASSERT_CUDA(cudaStreamEndCapture(main_, &shorter));
    EXPECT_EQ(cudaGraphExecUpdate(exec, shorter, &info), cudaErrorGraphExecUpdateFailure);
    EXPECT_EQ(info.result, cudaGraphExecUpdateErrorTopologyChanged);
    for (cudaGraph_t g : {graph, other, shorter}) ASSERT_CUDA(cudaGraphDestroy(g));
    ASSERT_CUDA(cudaGraphExecDestroy(exec));
  }
}

TEST_F(Graphs, ABranchThatIsNotJoinedIsAnError) {
  set_up({});
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(capture(2, false, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
  ASSERT_CUDA(cudaStreamSynchronize(side_));  // out of the capture
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kMisuse});
}

// Its branches are ordered by what was captured, not by the order in which it was.
TEST_F(Graphs, ARaceBetweenBranchesIsFound) {
  for (const Options& options : all_orders()) {
    set_up(options);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    ASSERT_CUDA(cudaStreamBeginCapture(main_, cudaStreamCaptureModeThreadLocal));
    ASSERT_CUDA(cudaEventRecord(fork_, main_));
    ASSERT_CUDA(cudaStreamWaitEvent(side_, fork_));
    ASSERT_CUDA(scale(x_, z_, kCount, 1, 0, main_));
    ASSERT_CUDA(cudaMemsetAsync(z_, 2, kBytes, side_));
    ASSERT_CUDA(cudaEventRecord(joined_, side_));
    ASSERT_CUDA(cudaStreamWaitEvent(main_, joined_));
    ASSERT_CUDA(cudaStreamEndCapture(main_, &graph));
    ASSERT_CUDA(cudaGraphInstantiate(&exec, graph));
    ASSERT_CUDA(cudaGraphLaunch(exec, main_));
    ASSERT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kRace}) << report();
  }
}

// A pinned buffer is read when the launch runs.
TEST_F(Graphs, WritingToAPinnedSourceOfALaunchIsFound) {
  set_up({});
  int32_t* source = pinned_array(1);
  *source = 1;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(main_, cudaStreamCaptureModeThreadLocal));
  ASSERT_CUDA(cudaMemcpyAsync(x_, source, 4, cudaMemcpyHostToDevice, main_));
  ASSERT_CUDA(cudaStreamEndCapture(main_, &graph));
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph));
  *source = 2;
  ASSERT_CUDA(cudaGraphLaunch(exec, main_));
  EXPECT_EQ(values(x_, 1)[0], 2);
  EXPECT_EQ(report(), "");
  ASSERT_CUDA(cudaGraphLaunch(exec, main_));
  *source = 3;
  ASSERT_CUDA(cudaStreamSynchronize(main_));
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kPinnedMemory});
}

TEST_F(Graphs, WhatIsNotAllowedInACaptureEndsIt) {
  using Act = std::function<cudaError_t(Graphs*)>;
  const std::vector<std::pair<Act, cudaError_t>> acts = {
      {[](Graphs* t) { return cudaStreamSynchronize(t->main_); },
       cudaErrorStreamCaptureUnsupported},
      {[](Graphs* t) { return cudaStreamQuery(t->main_); }, cudaErrorStreamCaptureUnsupported},
      {[](Graphs*) { return cudaDeviceSynchronize(); }, cudaErrorStreamCaptureUnsupported},
      {[](Graphs*) {
         void* x = nullptr;
         return cudaMalloc(&x, 1);
       },
       cudaErrorStreamCaptureUnsupported},
      {[](Graphs* t) {
         EXPECT_EQ(cudaEventRecord(t->joined_, t->side_), cudaSuccess);
         return cudaStreamWaitEvent(t->main_, t->joined_);
       },
       cudaErrorStreamCaptureIsolation}};
  for (const auto& [act, error] : acts) {
    set_up({});
    ASSERT_CUDA(cudaStreamBeginCapture(main_, cudaStreamCaptureModeThreadLocal));
    EXPECT_EQ(act(this), error);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(main_, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kMisuse}) << report();
  }
}

// Other threads may go on, where the capture is this thread's alone.
TEST_F(Graphs, ACaptureOfOneThreadLeavesOthersAlone) {
  set_up({});
  for (const auto mode : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal}) {
    ASSERT_CUDA(cudaStreamBeginCapture(main_, mode));
    std::thread([&] {
      void* x = nullptr;
      const cudaError_t error = cudaMalloc(&x, 1);
      EXPECT_EQ(error == cudaSuccess, mode == cudaStreamCaptureModeThreadLocal);
      if (error == cudaSuccess) {
        EXPECT_EQ(cudaFree(x), cudaSuccess);
      }
    }).join();
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(main_, &graph);
    EXPECT_EQ(ended == cudaSuccess, mode == cudaStreamCaptureModeThreadLocal);
    if (graph != nullptr) {
      ASSERT_CUDA(cudaGraphDestroy(graph));
    }
  }
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kMisuse});
}

}  // namespace
}  // namespace deltad::emulated_gpu
