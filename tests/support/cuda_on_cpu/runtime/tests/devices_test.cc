// Several devices: whose memory, streams and errors are whose; peers; and threads that work on them
// at the same time.
#include <thread>

#include "base/mutex.h"
#include "tests/support/cuda_on_cpu/runtime/tests/fixture.h"

namespace deltad::emulated_gpu {
namespace {

class Devices : public GpuTest {
 protected:
  Devices() { start({.devices = 2}); }
  int32_t* array_of(int device, int value) {
    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
    int32_t* made = device_array(1);
    EXPECT_EQ(cudaMemset(made, value, sizeof *made), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return made;
  }
};

TEST_F(Devices, AreCounted) {
  int count = 0;
  ASSERT_CUDA(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  array_of(1, 0);
  EXPECT_EQ(allocated_bytes(0), 0u);
  EXPECT_EQ(allocated_bytes(1), 4u);
  start({.devices = 0});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  start({});
}

TEST_F(Devices, AKernelTouchesPeersMemoryOnlyWhereThatIsEnabled) {
  for (const bool enabled : {true, false}) {
    start({.devices = 2});
    const int32_t* theirs = array_of(1, 1);
    int32_t* own = array_of(0, 0);
    const cudaStream_t a = stream();
    if (enabled) {
      int can = 0;
      ASSERT_CUDA(cudaDeviceCanAccessPeer(&can, 0, 1));
      EXPECT_EQ(can, 1);
      ASSERT_CUDA(cudaDeviceEnablePeerAccess(1, 0));
      EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    }
    ASSERT_CUDA(scale(theirs, own, 1, 1, 0, a));
    EXPECT_EQ(cudaStreamSynchronize(a), enabled ? cudaSuccess : cudaErrorIllegalAddress);
    if (!enabled) {
      EXPECT_NE(report().find("no peer"), std::string::npos) << report();
    }
  }
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kKernel});
}

TEST_F(Devices, PeerCopiesAreOrderedByEventsToo) {
  for (const bool waits : {true, false}) {
    for (Options options : all_orders()) {
      options.devices = 2;
      start(options);
      int32_t* theirs = array_of(1, 1);
      const cudaStream_t b = stream();
      const cudaEvent_t ready = event();
      ASSERT_CUDA(cudaMemsetAsync(theirs, 2, 4, b));
      ASSERT_CUDA(cudaEventRecord(ready, b));
      int32_t* own = array_of(0, 0);
      const cudaStream_t a = stream();
      if (waits) {
        ASSERT_CUDA(cudaStreamWaitEvent(a, ready));
      }
      ASSERT_CUDA(cudaMemcpyPeerAsync(own, 0, theirs, 1, 4, a));
      ASSERT_CUDA(cudaStreamSynchronize(a));
      ASSERT_CUDA(cudaStreamSynchronize(b));
      if (waits) {
        EXPECT_EQ(values(own, 1)[0], 0x02020202);
      } else {
        EXPECT_EQ(expected_faults(), std::vector<FaultKind>{FaultKind::kRace}) << report();
      }
    }
  }
  start({});
}

TEST_F(Devices, StreamsBelongToOne) {
  ASSERT_CUDA(cudaSetDevice(1));
  const cudaStream_t b = stream();
  const cudaEvent_t of_b = event();
  int32_t* own = array_of(0, 0);
  EXPECT_EQ(scale(own, own, 1, 1, 0, b), cudaErrorInvalidResourceHandle);
  const cudaStream_t a = stream();
  EXPECT_EQ(cudaEventRecord(of_b, a), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaMemcpyPeerAsync(own, 1, own, 0, 4, a), cudaErrorInvalidValue);
  EXPECT_EQ(expected_faults(), std::vector<FaultKind>(3, FaultKind::kMisuse));
}

TEST_F(Devices, AnErrorSticksToItsOwn) {
  inject({.call = call_count() + 1, .error = cudaErrorECCUncorrectable, .sticky = true});
  ASSERT_CUDA(cudaSetDevice(1));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorECCUncorrectable);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorECCUncorrectable);
  std::thread([] { EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess); }).join();  // device 0
  ASSERT_CUDA(cudaDeviceReset());
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_CUDA(cudaSetDevice(0));
}

void count_up(void* counter) { ++*static_cast<int*>(counter); }

// Threads with streams of their own, host functions among their work.
TEST_F(Devices, ThreadsDoNotDisturbEachOther) {
  for (Options options : all_orders()) {
    options.devices = 2;
    options.idle_ms = 1;
    start(options);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([t] {
        EXPECT_EQ(cudaSetDevice(t % 2), cudaSuccess);
        cudaStream_t stream = nullptr;
        EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
        void *device = nullptr, *pinned = nullptr;
        EXPECT_EQ(cudaMalloc(&device, 64), cudaSuccess);
        EXPECT_EQ(cudaMallocHost(&pinned, 64), cudaSuccess);
        auto* bytes = static_cast<unsigned char*>(pinned);
        int calls = 0;
        for (int i = 0; i < 10; ++i) {
          EXPECT_EQ(cudaMemsetAsync(device, 10 * t + i, 64, stream), cudaSuccess);
          EXPECT_EQ(cudaLaunchHostFunc(stream, count_up, &calls), cudaSuccess);
          EXPECT_EQ(cudaMemcpyAsync(pinned, device, 64, cudaMemcpyDeviceToHost, stream),
                    cudaSuccess);
          EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
          EXPECT_EQ(bytes[63], 10 * t + i);
          EXPECT_EQ(calls, i + 1);
        }
        EXPECT_EQ(cudaFree(device), cudaSuccess);
        EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
        EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

struct Signal {
  Mutex mutex;
  CondVar changed;
  bool set = false;
};

// Whoever waits for a host function without a call of the runtime is not left waiting.
TEST_F(Devices, WorkGoesOnWhenNobodyAsks) {
  start({.order = Order::kLatest, .idle_ms = 1});
  const cudaStream_t a = stream();
  int32_t* x = device_array(1);
  Signal signal;
  ASSERT_CUDA(cudaMemsetAsync(x, 0, 4, a));
  ASSERT_CUDA(cudaLaunchHostFunc(
      a,
      [](void* data) {
        auto* s = static_cast<Signal*>(data);
        const MutexLock lock(s->mutex);
        s->set = true;
        s->changed.notify_all();
      },
      &signal));
  const MutexLock lock(signal.mutex);
  while (!signal.set) signal.changed.wait(signal.mutex);
}

}  // namespace
}  // namespace deltad::emulated_gpu
