// Graphs: captured from streams, made executable, launched.
#include "tests/support/cuda_on_cpu/runtime/stream.h"

using namespace deltad::emulated_gpu;

namespace {

// Whether every node leads to one that the origin's next work would come after.
bool all_joined(const Capture& capture) {
  std::vector<bool> reached(capture.nodes.size(), false);
  std::vector<size_t> open = capture.origin->captured;
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    if (reached[node]) continue;
    reached[node] = true;
    for (const size_t before : capture.nodes[node].after) open.push_back(before);
  }
  for (const bool here : reached) {
    if (!here) return false;
  }
  return true;
}

// Whether nodes of `now` can take the places of the old ones.
cudaGraphExecUpdateResult compare(const std::vector<Node>& old, const std::vector<Node>& now) {
  if (old.size() != now.size()) return cudaGraphExecUpdateErrorTopologyChanged;
  for (size_t i = 0; i < old.size(); ++i) {
    if (old[i].after != now[i].after) return cudaGraphExecUpdateErrorTopologyChanged;
    if (old[i].work->kind != now[i].work->kind) return cudaGraphExecUpdateErrorNodeTypeChanged;
  }
  return cudaGraphExecUpdateSuccess;
}

}  // namespace

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  EMULATED_CALL(cudaStreamBeginCapture);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    CUstream_st* found = stream_of(call, gpu, stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (found->number == 0 || found->capture) {
      return call.misuse(cudaErrorStreamCaptureUnsupported, "of this stream");
    }
    found->capture = std::make_shared<Capture>(
        Capture{.origin = found, .mode = mode, .thread = std::this_thread::get_id()});
    found->capture->branches[found] = 0;
    found->captured.clear();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph) {
  EMULATED_CALL(cudaStreamEndCapture, CallKind::kReleases);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    CUstream_st* found = stream_of(call, gpu, stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    *pGraph = nullptr;
    if (!found->capture || found->capture->origin != found) {
      return call.misuse(cudaErrorStreamCaptureUnmatched, "no capture began in this stream");
    }
    const std::shared_ptr<Capture> capture = found->capture;
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        capture->thread != std::this_thread::get_id()) {
      return call.misuse(cudaErrorStreamCaptureWrongThread, "another thread began it");
    }
    const bool joined = all_joined(*capture);
    capture->ended = true;
    for (const auto& [part, branch] : capture->branches) {
      part->capture = nullptr;
      part->captured.clear();
    }
    if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (!joined) {
      // Where a call was made to fail, it may be the one that would have joined them.
      if (!gpu.failures.empty()) return cudaErrorStreamCaptureUnjoined;
      return call.misuse(cudaErrorStreamCaptureUnjoined, "work that the stream does not wait for");
    }
    auto graph = std::make_unique<CUgraph_st>();
    graph->kind = "graph";
    graph->made_at = call.site();
    graph->nodes = std::move(capture->nodes);
    graph->branches = capture->branches.size();
    *pGraph = gpu.handles.add(std::move(graph));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  enum cudaStreamCaptureStatus* pCaptureStatus) {
  EMULATED_CALL(cudaStreamIsCapturing);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    const CUstream_st* found = stream_of(call, gpu, stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    *pCaptureStatus = !found->capture           ? cudaStreamCaptureStatusNone
                      : found->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                                : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* pGraphExec, cudaGraph_t graph,
                                 unsigned long long) {
  EMULATED_CALL(cudaGraphInstantiate);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    const CUgraph_st* found = gpu.handles.find<CUgraph_st>(graph);
    if (found == nullptr) return call.misuse(cudaErrorInvalidValue, "no such graph");
    auto exec = std::make_unique<CUgraphExec_st>();
    exec->kind = "executable graph";
    exec->made_at = call.site();
    exec->nodes = found->nodes;
    exec->bytes.resize(gpu.devices.size());
    for (const Node& node : exec->nodes)
      exec->bytes[static_cast<size_t>(node.work->device)] += gpu.options.graph_node_bytes;
    for (size_t device = 0; device < exec->bytes.size(); ++device) {
      if (gpu.memory.charge(static_cast<int>(device), exec->bytes[device])) continue;
      while (device-- > 0) gpu.memory.discharge(static_cast<int>(device), exec->bytes[device]);
      return cudaErrorMemoryAllocation;
    }
    for (size_t i = 0; i < found->branches; ++i) {
      exec->timelines.push_back(gpu.schedule.new_timeline());
    }
    *pGraphExec = gpu.handles.add(std::move(exec));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t hGraphExec, cudaGraph_t hGraph,
                                cudaGraphExecUpdateResultInfo* resultInfo) {
  EMULATED_CALL(cudaGraphExecUpdate);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    CUgraphExec_st* exec = gpu.handles.find<CUgraphExec_st>(hGraphExec);
    const CUgraph_st* graph = gpu.handles.find<CUgraph_st>(hGraph);
    if (exec == nullptr || graph == nullptr) {
      return call.misuse(cudaErrorInvalidValue, "no such graph");
    }
    const cudaGraphExecUpdateResult result = compare(exec->nodes, graph->nodes);
    if (resultInfo != nullptr) *resultInfo = {result, nullptr, nullptr};
    if (result != cudaGraphExecUpdateSuccess) return cudaErrorGraphExecUpdateFailure;
    exec->nodes = graph->nodes;  // of launches to come
    return cudaSuccess;
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream) {
  EMULATED_CALL(cudaGraphUpload);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    const bool there = gpu.handles.find<CUgraphExec_st>(graphExec) != nullptr;
    if (!there) return call.misuse(cudaErrorInvalidValue, "no such executable graph");
    return stream_of(call, gpu, stream) == nullptr ? cudaErrorInvalidResourceHandle : cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
  EMULATED_CALL(cudaGraphLaunch);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    CUgraphExec_st* exec = gpu.handles.find<CUgraphExec_st>(graphExec);
    CUstream_st* in = stream_of(call, gpu, stream);
    if (exec == nullptr) return call.misuse(cudaErrorInvalidValue, "no such executable graph");
    if (in == nullptr) return cudaErrorInvalidResourceHandle;
    if (in->capture) return call.misuse(cudaErrorNotSupported, "a graph within a graph");
    // It begins where the stream is, and after its own last launch; the stream goes on when all of
    // it is over.
    OperationPtr start;
    const cudaError_t error =
        hand_over(gpu, *in, work_of(call, *in, WorkKind::kMarker), {exec->last}, &start);
    if (error != cudaSuccess) return error;
    std::vector<OperationPtr> made;
    for (const Node& node : exec->nodes) {
      std::vector<OperationPtr> after;
      for (const size_t before : node.after) after.push_back(made[before]);
      if (after.empty()) after.push_back(start);
      made.push_back(gpu.schedule.add(node.work, exec->timelines[node.branch], std::move(after)));
      if (node.event != nullptr) node.event->recorded = made.back();
    }
    return hand_over(gpu, *in, work_of(call, *in, WorkKind::kMarker), made, &exec->last);
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
  EMULATED_CALL(cudaGraphExecDestroy, CallKind::kReleases);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    CUgraphExec_st* exec = gpu.handles.find<CUgraphExec_st>(graphExec);
    if (exec == nullptr) return call.misuse(cudaErrorInvalidValue, "no such executable graph");
    exec->destroyed = true;
    exec->nodes.clear();
    for (size_t device = 0; device < exec->bytes.size(); ++device)
      gpu.memory.discharge(static_cast<int>(device), exec->bytes[device]);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  EMULATED_CALL(cudaGraphDestroy, CallKind::kReleases);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    CUgraph_st* found = gpu.handles.find<CUgraph_st>(graph);
    if (found == nullptr) return call.misuse(cudaErrorInvalidValue, "no such graph");
    found->destroyed = true;
    found->nodes.clear();
    return cudaSuccess;
  });
}
