// Graphs over several devices: captured from streams of each, launched in one of them; what orders
// their work, and which of the orders that a program forgets are found; and events that they
// record.
#include "tests/support/cuda_on_cpu/runtime/tests/fixture.h"

namespace deltad::emulated_gpu {
namespace {

class GraphsOfDevices : public GpuTest {
 protected:
  // What a test leaves out.
  enum class Forgets { kNothing, kWaitForPeer, kWaitBefore, kWaitAfter };

  void set_up(Options options) {
    options.devices = 2;
    start(options);
    for (int d = 0; d < 2; ++d) {
      ASSERT_CUDA(cudaSetDevice(d));
      ASSERT_CUDA(cudaDeviceEnablePeerAccess(1 - d, 0));
      stream_[d] = stream();
      join_[d] = event(), mark_[d] = event();
      x_[d] = device_array(1), y_[d] = device_array(1);
    }
    ASSERT_CUDA(cudaSetDevice(0));
  }
  cudaError_t on(int device, const int32_t* in, int32_t* out, int factor, int add) {
    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
    return scale(in, out, 1, factor, add, stream_[device]);
  }
  // Each device: x = x · 2 + 1; then, when both have: y = the other's x.
  cudaError_t capture(Forgets forgets, cudaGraph_t* graph) {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cudaStreamBeginCapture(stream_[0], cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(join_[0], stream_[0]), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(stream_[1], join_[0]), cudaSuccess);
    for (int d = 0; d < 2; ++d) {
      EXPECT_EQ(on(d, x_[d], x_[d], 2, 1), cudaSuccess);
      EXPECT_EQ(cudaEventRecordWithFlags(mark_[d], stream_[d], cudaEventRecordExternal),
                cudaSuccess);
      EXPECT_EQ(cudaEventRecord(join_[d], stream_[d]), cudaSuccess);
    }
    for (int d = 0; d < 2; ++d) {
      if (d == 0 || forgets != Forgets::kWaitForPeer) {
        EXPECT_EQ(cudaStreamWaitEvent(stream_[d], join_[1 - d]), cudaSuccess);
      }
      EXPECT_EQ(on(d, x_[1 - d], y_[d], 1, 0), cudaSuccess);
    }
    EXPECT_EQ(cudaEventRecord(join_[1], stream_[1]), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(stream_[0], join_[1]), cudaSuccess);
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    return cudaStreamEndCapture(stream_[0], graph);
  }
  // x is cleared on each device's stream, the graph runs in the first one's, each y is used after
  // it on its own.
  void run(Forgets forgets, int times) {
    cudaGraph_t graph = nullptr;
    ASSERT_CUDA(capture(forgets, &graph));
    ASSERT_CUDA(cudaGraphInstantiate(&exec_, graph));
    ASSERT_CUDA(cudaGraphDestroy(graph));
    for (int d = 0; d < 2; ++d) {
      ASSERT_CUDA(cudaSetDevice(d));
      ASSERT_CUDA(cudaMemsetAsync(x_[d], d, sizeof(int32_t), stream_[d]));
    }
    for (int i = 0; i < times; ++i) {
      ASSERT_CUDA(cudaEventRecord(join_[1], stream_[1]));
      if (forgets != Forgets::kWaitBefore) {
        ASSERT_CUDA(cudaStreamWaitEvent(stream_[0], join_[1]));
      }
      ASSERT_CUDA(cudaSetDevice(0));
      ASSERT_CUDA(cudaGraphLaunch(exec_, stream_[0]));
      ASSERT_CUDA(cudaEventRecord(join_[0], stream_[0]));
      if (forgets != Forgets::kWaitAfter) {
        ASSERT_CUDA(cudaStreamWaitEvent(stream_[1], join_[0]));
      }
      ASSERT_CUDA(on(1, y_[1], y_[1], 1, 5));
    }
  }
  void end() {
    ASSERT_CUDA(cudaSetDevice(0));
    ASSERT_CUDA(cudaGraphExecDestroy(exec_));
  }

  cudaStream_t stream_[2]{};
  cudaEvent_t join_[2]{}, mark_[2]{};
  int32_t *x_[2]{}, *y_[2]{};
  cudaGraphExec_t exec_ = nullptr;
};

TEST_F(GraphsOfDevices, RunAsTheStreamsWould) {
  for (const Options& options : all_orders()) {
    set_up(options);
    run(Forgets::kNothing, 2);
    // x of the second is bytes of 1: twice 2x + 1.
    EXPECT_EQ(values(y_[1], 1)[0], 3 + 5);
    EXPECT_EQ(values(y_[0], 1)[0], 0x01010101 * 4 + 3);
    end();
  }
}

TEST_F(GraphsOfDevices, AForgottenWaitIsFound) {
  for (const Forgets forgets : {Forgets::kWaitForPeer, Forgets::kWaitBefore, Forgets::kWaitAfter}) {
    SCOPED_TRACE(static_cast<int>(forgets));
    set_up({.order = Order::kRandom, .seed = 3});
    run(forgets, 1);
    for (int d = 0; d < 2; ++d) ASSERT_CUDA(cudaStreamSynchronize(stream_[d]));
    const auto found = expected_faults();
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found[0], FaultKind::kRace);
    end();
  }
}

TEST_F(GraphsOfDevices, TakeMemoryOfTheDeviceThatANodeIsOf) {
  set_up({});
  const size_t before[] = {allocated_bytes(0), allocated_bytes(1)};
  run(Forgets::kNothing, 1);
  for (int d = 0; d < 2; ++d) EXPECT_EQ(allocated_bytes(d), before[d] + 3 * 1024);
  for (int d = 0; d < 2; ++d) ASSERT_CUDA(cudaStreamSynchronize(stream_[d]));
  end();
  for (int d = 0; d < 2; ++d) EXPECT_EQ(allocated_bytes(d), before[d]);
}

// One device's kernel hangs: its mark does not come, the other's does, in each launch.
TEST_F(GraphsOfDevices, RecordEventsThatSayHowFarTheyAre) {
  set_up({});
  // Of the second device's thread: the launch that comes first in the capture.
  size_t calls_of_second = 0;
  for (const CallRecord& call : calls()) calls_of_second += call.device == 1;
  EXPECT_EQ(cudaEventQuery(mark_[0]), cudaSuccess);  // nothing was recorded
  inject({.call = calls_of_second + 1, .error = 0, .hangs = true, .device = 1});
  run(Forgets::kNothing, 1);
  for (int i = 0; i < 20; ++i) (void)cudaStreamQuery(stream_[0]);
  EXPECT_EQ(cudaEventQuery(mark_[0]), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(mark_[1]), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream_[0]), cudaErrorNotReady);
  let_go();
  for (int d = 0; d < 2; ++d) ASSERT_CUDA(cudaStreamSynchronize(stream_[d]));
  EXPECT_EQ(cudaEventQuery(mark_[1]), cudaSuccess);
  end();
}

}  // namespace
}  // namespace deltad::emulated_gpu
