#include "tests/support/cuda_on_cpu/runtime/stream.h"

#include <utility>

namespace deltad::emulated_gpu {

CUstream_st* stream_of(Call& call, Gpu& gpu, cudaStream_t stream) {
  if (stream == nullptr)
    return gpu.devices[static_cast<size_t>(current_device())].null_stream.get();
  CUstream_st* found = gpu.handles.find<CUstream_st>(stream);
  if (found == nullptr) call.misuse(cudaErrorInvalidResourceHandle, "no such stream");
  return found;
}

Work work_of(const Call& call, const CUstream_st& stream, WorkKind kind) {
  Work work;
  work.kind = kind;
  work.name = call.name();
  work.stream = stream.text();
  work.site = call.site();
  work.device = stream.device;
  return work;
}

namespace {

// What a test may put on another stream.
bool is_misplaced(Gpu& gpu, const Work& work) {
  const bool can = work.kind == WorkKind::kKernel || work.kind == WorkKind::kCopy ||
                   work.kind == WorkKind::kCollective || work.name == "cudaFreeAsync";
  if (!can) return false;
  const uint32_t site = gpu.sites.at(work.site);
  gpu.work_sites.emplace(work.name, site);
  return !gpu.misplaced.empty() && gpu.misplaced.contains(work.name + " " + gpu.site_keys[site]);
}

}  // namespace

cudaError_t hand_over(Gpu& gpu, CUstream_st& stream, Work work, std::vector<OperationPtr> also,
                      OperationPtr* operation) {
  if (const cudaError_t error = gpu.next_work_error; error != cudaSuccess) {
    work.host = {};
    work.join = {};
    work.run = [error](Gpu& g, Operation& o) { g.fail(o.work->device, error); };
  }
  work.hangs = gpu.next_work_hangs;
  // At once, also where its own stream is captured.
  if (is_misplaced(gpu, work)) {
    CUstream_st& stray = *gpu.devices[static_cast<size_t>(stream.device)].stray;
    std::vector<OperationPtr> before;
    if (stray.last) before.push_back(stray.last);
    work.stream = "a stream that is not its own";
    stray.last = gpu.schedule.add(std::make_shared<const Work>(std::move(work)), stray.timeline,
                                  std::move(before));
    if (operation != nullptr) *operation = stray.last;
    return cudaSuccess;
  }
  if (stream.capture) {
    Capture& capture = *stream.capture;
    if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
    const size_t branch =
        capture.branches.try_emplace(&stream, capture.branches.size()).first->second;
    capture.nodes.push_back(
        {std::make_shared<const Work>(std::move(work)), stream.captured, branch});
    stream.captured = {capture.nodes.size() - 1};
    return cudaSuccess;
  }
  std::vector<OperationPtr> after;
  const auto add = [&](const OperationPtr& before) {
    if (before) after.push_back(before);
  };
  add(stream.last);
  for (const auto& other : also) add(other);
  // The null stream waits for all streams that are not said to be apart, and they for it.
  const auto& null_stream = gpu.devices[static_cast<size_t>(stream.device)].null_stream;
  if (&stream == null_stream.get()) {
    gpu.handles.for_each_ever<CUstream_st>([&](CUstream_st& other) {
      const bool blocks = other.device == stream.device && !(other.flags & cudaStreamNonBlocking);
      if (blocks) add(other.last);
    });
  } else if (!(stream.flags & cudaStreamNonBlocking)) {
    add(null_stream->last);
  }
  stream.last = gpu.schedule.add(std::make_shared<const Work>(std::move(work)), stream.timeline,
                                 std::move(after));
  if (operation != nullptr) *operation = stream.last;
  return cudaSuccess;
}

void wait_for(Gpu& gpu, const OperationPtr& operation) {
  if (!operation) return;
  gpu.schedule.wait_for(operation);
  if (operation->done()) gpu.host.join(operation->clock);
}

cudaError_t query(Gpu& gpu, const OperationPtr& operation) {
  if (!operation) return cudaSuccess;
  if (!operation->done()) {
    gpu.schedule.nudge(operation);
    return cudaErrorNotReady;
  }
  gpu.host.join(operation->clock);
  return cudaSuccess;
}

cudaError_t forbid_capture(Call& call, Gpu& gpu) {
  bool found = false;
  gpu.handles.for_each<CUstream_st>([&](CUstream_st& stream) {
    if (!stream.capture) return;
    Capture& capture = *stream.capture;
    const bool own = capture.thread == std::this_thread::get_id();
    const bool concerned = capture.mode == cudaStreamCaptureModeGlobal ||
                           (capture.mode == cudaStreamCaptureModeThreadLocal && own);
    if (!concerned) return;
    capture.invalid = found = true;
  });
  if (!found) return cudaSuccess;
  return call.misuse(cudaErrorStreamCaptureUnsupported, "not while a stream is being captured");
}

}  // namespace deltad::emulated_gpu
