// CudaDevice: one GPU as this process uses it: its streams, what it can do, and whether it still
// works. Owned by CudaBackend; its calls may come from any thread.
//
// Two streams: steps run on compute(), in order; copies and repacking of weights on load(). What
// the one must know of the other goes through events (step_ended, order_after_steps).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"

namespace deltad {

// 13000 → "13.0".
std::string cuda_version(int number);
// What CUDA calls the error, in words that help.
std::string cuda_reason(cudaError_t error);

class CudaDevice {
 public:
  static constexpr Duration kLongWait = std::chrono::seconds(60);

  // kUnavailable if there is no such device, or no driver for it.
  // bound: of await.
  static Result<std::unique_ptr<CudaDevice>> open(int ordinal, Duration bound = kLongWait);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;

  int ordinal() const { return ordinal_; }
  // Makes it the calling thread's device.
  Status use();
  // Ok, or what failed and what for. An error that stays (the context is lost) makes the device
  // unhealthy.
  Status check(cudaError_t error, std::string_view call, std::string_view purpose);
  Status health() const;

  // Returns when `query` (cudaEventQuery, cudaStreamQuery) no longer says cudaErrorNotReady; asleep
  // but for the first moments. A GPU that lets a load wait for longer than the bound has failed,
  // for good, unless it is at a step that loads may wait for: then only this wait has. CUDA's own
  // waits have no end.
  template <class Query>
  Status await(const Query& query, std::string_view call, const char* purpose) {
    for (Pause pause(*this);;) {
      const cudaError_t state = query();
      if (state != cudaErrorNotReady) return check(state, call, purpose);
      RETURN_IF_ERROR(pause.once(purpose));
    }
  }

  // Its kernels may use the other's memory from now on. kUnimplemented if they cannot.
  Status reach(const CudaDevice& other);
  // Waits until all GPUs of this process are done with what they were given.
  static void wait_for_all();

  cudaStream_t compute() const { return compute_; }
  cudaStream_t load() const { return load_; }
  const std::string& name() const { return name_; }
  int major() const { return major_; }
  int minor() const { return minor_; }
  int multiprocessors() const { return multiprocessors_; }
  int64_t free_bytes();  // 0 if it cannot be told

  // Memory in the order of a stream comes out of a pool that keeps what is given back: variants and
  // scratch come and go, and the system's part of it costs more than all of CUDA's. What the pool
  // keeps without use is free for all else: whoever finds no room tries again after trim(), which
  // waits for loads.
  cudaError_t trim();
  // cudaMalloc.
  Status allocate(void** data, size_t bytes, const char* purpose);

  // The engine's thread: all work of a step is on compute().
  Status step_ended();
  // What comes next on `stream` waits for the steps that have ended so.
  Status order_after_steps(cudaStream_t stream);

 private:
  class Pause {  // between two questions
   public:
    explicit Pause(CudaDevice& device) : device_(device), began_(Clock::real().now()) {}
    Status once(const char* purpose);

   private:
    CudaDevice& device_;
    const TimePoint began_;
  };

  explicit CudaDevice(Duration bound) : bound_(bound) {}
  Status start(int ordinal);
  void fail(const Status& why);
  bool steps_under_way();

  const Duration bound_;
  int ordinal_ = 0;
  std::string name_;
  int major_ = 0, minor_ = 0, multiprocessors_ = 0;
  cudaStream_t compute_ = nullptr, load_ = nullptr;
  cudaMemPool_t pool_ = nullptr;  // the device's own
  mutable Mutex mutex_;
  cudaEvent_t steps_ GUARDED_BY(mutex_) = nullptr;
  Status health_ GUARDED_BY(mutex_);
};

// An event without a time. Move-only.
class CudaEvent {
 public:
  CudaEvent() = default;
  ~CudaEvent() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  CudaEvent(CudaEvent&& other) noexcept { std::swap(event_, other.event_); }
  CudaEvent& operator=(CudaEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  static Result<CudaEvent> make(CudaDevice& device);
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace deltad

// Status of a CUDA call; `purpose` (a string) is evaluated only if it failed.
#define CUDA_STATUS(device, call, purpose)                                                        \
  ([&]() -> ::deltad::Status {                                                                    \
    const cudaError_t error_ = (call);                                                            \
    return error_ == cudaSuccess ? ::deltad::Status() : (device).check(error_, #call, (purpose)); \
  }())
