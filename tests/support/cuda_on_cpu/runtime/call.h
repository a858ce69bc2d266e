// One call of the runtime: takes the lock, gives the call its number, fails it if a test wants so,
// and keeps the thread's last error.
#pragma once

#include <string>

#include "base/mutex.h"
#include "tests/support/cuda_on_cpu/runtime/call_site.h"
#include "tests/support/cuda_on_cpu/runtime/gpu.h"

namespace deltad::emulated_gpu {

// The emulated GPUs of now. Tests replace them by reset().
Gpu& gpu();

enum class CallKind : uint8_t {
  kAny,
  kReleases,  // acts even where it reports an error, which is then of earlier work
  kOrders,    // orders work: a test may switch it off
  kRecovers,  // acts whatever the device's state is
};

class Call {
 public:
  Call(const char* name, const void* return_address, const void* frame,
       CallKind kind = CallKind::kAny);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // The call's result: that of body(gpu), unless the call is to fail or to do nothing.
  template <class Body>
  cudaError_t make(Body body) {
    const cudaError_t before = begin();
    if (skip_) return end(cudaSuccess);
    if (before != cudaSuccess && kind_ != CallKind::kRecovers) {
      if (kind_ == CallKind::kReleases) body(gpu_);
      return end(before);
    }
    const cudaError_t result = body(gpu_);
    // What was waited for may have broken the device.
    return end(result == cudaSuccess && kind_ != CallKind::kReleases ? device_error() : result);
  }

  const char* name() const { return name_; }
  const CallSite& site() const { return site_; }
  // A call that is not allowed: a fault, and the error.
  cudaError_t misuse(cudaError_t error, const std::string& what);

 private:
  cudaError_t begin();
  cudaError_t end(cudaError_t result);
  cudaError_t device_error() const;

  Gpu& gpu_;
  const char* const name_;
  const CallKind kind_;
  CallSite site_;
  bool skip_ = false;
};

// The calling thread's.
int& current_device();
cudaError_t& last_error();

// What the environment says (environment.cc), for programs that no test sets up.
struct Settings {
  Options options = {.idle_ms = 5};
  std::vector<Failure> failures = {};
  std::vector<std::string> off = {};
};
Settings settings_of_environment();

#define EMULATED_CALL(name, ...)                \
  Call call(#name, __builtin_return_address(0), \
            __builtin_frame_address(0) __VA_OPT__(, ) __VA_ARGS__)

}  // namespace deltad::emulated_gpu
