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

#include "base/mutex.h"
#include "base/status.h"

namespace deltad {

// 13000 → "13.0".
std::string cuda_version(int number);
// What CUDA calls the error, in words that help.
std::string cuda_reason(cudaError_t error);

class CudaDevice {
 public:
  // kUnavailable if there is no such device, or no driver for it.
  static Result<std::unique_ptr<CudaDevice>> open(int ordinal);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;

  int ordinal() const { return ordinal_; }
  // Makes it the calling thread's device.
  Status use();
  // Ok, or what failed and what for. An error that stays (the context is lost) makes the device
  // unhealthy.
  Status check(cudaError_t error, std::string_view call, std::string_view purpose);
  Status health() const;

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

  // The engine's thread: all work of a step is on compute().
  Status step_ended();
  // What comes next on `stream` waits for the steps that have ended so.
  Status order_after_steps(cudaStream_t stream);

 private:
  CudaDevice() = default;
  Status start(int ordinal);

  int ordinal_ = 0;
  std::string name_;
  int major_ = 0, minor_ = 0, multiprocessors_ = 0;
  cudaStream_t compute_ = nullptr, load_ = nullptr;
  mutable Mutex mutex_;
  cudaEvent_t steps_ GUARDED_BY(mutex_) = nullptr;
  Status health_ GUARDED_BY(mutex_);
};

}  // namespace deltad

// Status of a CUDA call; `purpose` (a string) is evaluated only if it failed.
#define CUDA_STATUS(device, call, purpose)                                                        \
  ([&]() -> ::deltad::Status {                                                                    \
    const cudaError_t error_ = (call);                                                            \
    return error_ == cudaSuccess ? ::deltad::Status() : (device).check(error_, #call, (purpose)); \
  }())
