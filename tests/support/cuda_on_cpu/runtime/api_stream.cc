// Streams and events, as the CUDA runtime has them.
#include "tests/support/cuda_on_cpu/runtime/stream.h"

using namespace deltad::emulated_gpu;

namespace {

// The event; null, and a fault, if it is none.
CUevent_st* event_of(Call& call, Gpu& gpu, cudaEvent_t event) {
  CUevent_st* found = gpu.handles.find<CUevent_st>(event);
  if (found == nullptr) call.misuse(cudaErrorInvalidResourceHandle, "no such event");
  return found;
}

cudaError_t create_stream(Call& call, cudaStream_t* out, unsigned flags, int priority) {
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (out == nullptr || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    auto stream = std::make_unique<CUstream_st>();
    stream->kind = "stream";
    stream->made_at = call.site();
    stream->number = gpu.next_stream_number++;
    stream->device = current_device();
    stream->flags = flags;
    stream->priority = priority;
    stream->timeline = gpu.schedule.new_timeline();
    *out = gpu.handles.add(std::move(stream));
    return cudaSuccess;
  });
}

cudaError_t record(Call& call, cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (flags > cudaEventRecordExternal) return cudaErrorInvalidValue;
    CUevent_st* recorded = event_of(call, gpu, event);
    CUstream_st* in = stream_of(call, gpu, stream);
    if (recorded == nullptr || in == nullptr) return cudaErrorInvalidResourceHandle;
    if (recorded->device != in->device) {
      return call.misuse(
          cudaErrorInvalidResourceHandle,
          "an event of device " + std::to_string(recorded->device) + " in " + in->text());
    }
    // Of a graph: each launch records it.
    if (in->capture && flags == cudaEventRecordExternal) {
      const cudaError_t error = hand_over(gpu, *in, work_of(call, *in, WorkKind::kMarker));
      if (error == cudaSuccess) in->capture->nodes.back().event = recorded;
      return error;
    }
    recorded->capture = in->capture;
    if (in->capture) {
      recorded->captured = in->captured;
      return cudaSuccess;
    }
    return hand_over(gpu, *in, work_of(call, *in, WorkKind::kMarker), {}, &recorded->recorded);
  });
}

}  // namespace

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags) {
  EMULATED_CALL(cudaStreamCreateWithFlags);
  return create_stream(call, pStream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int flags, int priority) {
  EMULATED_CALL(cudaStreamCreateWithPriority);
  return create_stream(call, pStream, flags, priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  EMULATED_CALL(cudaStreamDestroy, CallKind::kReleases);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    CUstream_st* found = gpu.handles.find<CUstream_st>(stream);
    if (found == nullptr) return call.misuse(cudaErrorInvalidResourceHandle, "no such stream");
    if (found->capture) return call.misuse(cudaErrorStreamCaptureUnsupported, "it is captured");
    found->destroyed = true;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  EMULATED_CALL(cudaStreamSynchronize, CallKind::kOrders);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    const CUstream_st* found = stream_of(call, gpu, stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (found->capture) {
      found->capture->invalid = true;
      return call.misuse(cudaErrorStreamCaptureUnsupported, "the stream is being captured");
    }
    wait_for(gpu, found->last);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  EMULATED_CALL(cudaStreamQuery, CallKind::kOrders);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    const CUstream_st* found = stream_of(call, gpu, stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (found->capture) {
      found->capture->invalid = true;
      return call.misuse(cudaErrorStreamCaptureUnsupported, "the stream is being captured");
    }
    return query(gpu, found->last);
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  EMULATED_CALL(cudaStreamWaitEvent, CallKind::kOrders);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    CUstream_st* waiting = stream_of(call, gpu, stream);
    const CUevent_st* awaited = event_of(call, gpu, event);
    if (waiting == nullptr || awaited == nullptr) return cudaErrorInvalidResourceHandle;
    if (awaited->capture) {  // the stream takes part in the capture from here on
      if (awaited->capture->ended) return cudaErrorCapturedEvent;
      if (waiting->capture && waiting->capture != awaited->capture) {
        return call.misuse(cudaErrorStreamCaptureMerge, "two captures meet");
      }
      if (!waiting->capture) {
        waiting->capture = awaited->capture;
        waiting->captured.clear();
        waiting->capture->branches.try_emplace(waiting, waiting->capture->branches.size());
      }
      waiting->captured.insert(waiting->captured.end(), awaited->captured.begin(),
                               awaited->captured.end());
      return cudaSuccess;
    }
    if (waiting->capture) {
      waiting->capture->invalid = true;
      return call.misuse(cudaErrorStreamCaptureIsolation,
                         "a captured stream waits for an event outside of the capture");
    }
    if (!awaited->recorded) return cudaSuccess;
    return hand_over(gpu, *waiting, work_of(call, *waiting, WorkKind::kMarker),
                     {awaited->recorded});
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  EMULATED_CALL(cudaLaunchHostFunc);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    CUstream_st* found = stream_of(call, gpu, stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    Work work = work_of(call, *found, WorkKind::kHostFunction);
    work.host = [fn, userData] { fn(userData); };
    return hand_over(gpu, *found, std::move(work));
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  EMULATED_CALL(cudaEventCreateWithFlags);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    if (event == nullptr || flags > (cudaEventBlockingSync | cudaEventDisableTiming)) {
      return cudaErrorInvalidValue;
    }
    auto made = std::make_unique<CUevent_st>();
    made->kind = "event";
    made->made_at = call.site();
    made->device = current_device();
    made->flags = flags;
    *event = gpu.handles.add(std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  EMULATED_CALL(cudaEventDestroy, CallKind::kReleases);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    CUevent_st* found = event_of(call, gpu, event);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    found->destroyed = true;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  EMULATED_CALL(cudaEventRecord, CallKind::kOrders);
  return record(call, event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  EMULATED_CALL(cudaEventRecordWithFlags, CallKind::kOrders);
  return record(call, event, stream, flags);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  EMULATED_CALL(cudaEventQuery, CallKind::kOrders);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    const CUevent_st* found = event_of(call, gpu, event);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (found->capture) return call.misuse(cudaErrorCapturedEvent, "recorded in a capture");
    return query(gpu, found->recorded);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  EMULATED_CALL(cudaEventSynchronize, CallKind::kOrders);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    const CUevent_st* found = event_of(call, gpu, event);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (found->capture) return call.misuse(cudaErrorCapturedEvent, "recorded in a capture");
    wait_for(gpu, found->recorded);
    return cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  EMULATED_CALL(cudaEventElapsedTime);
  return call.make([&](Gpu& gpu) -> cudaError_t {
    const CUevent_st* a = event_of(call, gpu, start);
    const CUevent_st* b = event_of(call, gpu, end);
    if (a == nullptr || b == nullptr) return cudaErrorInvalidResourceHandle;
    if (ms == nullptr) return cudaErrorInvalidValue;
    if (((a->flags | b->flags) & cudaEventDisableTiming) != 0 || !a->recorded || !b->recorded) {
      return call.misuse(cudaErrorInvalidResourceHandle, "events without a time");
    }
    for (const auto& operation : {a->recorded, b->recorded}) {
      if (const cudaError_t state = query(gpu, operation); state != cudaSuccess) return state;
    }
    // A thousandth of a millisecond an operation: no clock, so the same in every run.
    *ms = static_cast<float>(static_cast<double>(b->recorded->number) -
                             static_cast<double>(a->recorded->number)) /
          1000;
    return cudaSuccess;
  });
}
