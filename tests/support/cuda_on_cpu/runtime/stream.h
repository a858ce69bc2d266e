// How calls put work into streams: at once into the schedule, or into the graph that the stream is
// captured for. Under the runtime's lock.
#pragma once

#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/cuda_on_cpu/runtime/call.h"

namespace deltad::emulated_gpu {

// Work of one or several streams on its way into a graph.
struct Capture {
  CUstream_st* origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  std::map<CUstream_st*, size_t> branches = {};  // the streams that take part
  std::vector<Node> nodes = {};
  bool invalid = false;
  bool ended = false;
};

// The stream; null, and a fault, if it is none.
CUstream_st* stream_of(Call& call, Gpu& gpu, cudaStream_t stream);

// Work with the call's name, site and stream.
Work work_of(const Call& call, const CUstream_st& stream, WorkKind kind);

// Puts it at the stream's end, after `also` too. *operation: what was handed over; null if the
// stream is being captured.
cudaError_t hand_over(Gpu& gpu, CUstream_st& stream, Work work, std::vector<OperationPtr> also = {},
                      OperationPtr* operation = nullptr);

// Waits for an operation, and lets the host know of all before it. Null: nothing.
void wait_for(Gpu& gpu, const OperationPtr& operation);
// cudaSuccess or cudaErrorNotReady.
cudaError_t query(Gpu& gpu, const OperationPtr& operation);

// For a call that does not go with a capture of this thread, or of any in global mode: the error,
// and the captures become invalid.
cudaError_t forbid_capture(Call& call, Gpu& gpu);

}  // namespace deltad::emulated_gpu
