#include "backend/cuda/cuda_device.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <vector>

#include "base/log.h"

namespace deltad {
namespace {

Mutex opened_mutex;
std::vector<const CudaDevice*> opened GUARDED_BY(opened_mutex);  // of the process

// A wait is that of a copy of a few megabytes, or of many of them.
constexpr Duration kAwake = std::chrono::microseconds(50), kNap = std::chrono::microseconds(100);

// After these every call of the process fails.
bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

Code code_of(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return Code::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInvalidDevice:
      return Code::kUnavailable;
    default:
      return Code::kInternal;
  }
}

}  // namespace

std::string cuda_version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

std::string cuda_reason(cudaError_t error) {
  if (error != cudaErrorInsufficientDriver) return cudaGetErrorString(error);
  int driver = 0;  // stays 0 where there is none, of which CUDA says the same
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    return "there is no NVIDIA driver";
  return fmt::format("the NVIDIA driver is one for CUDA {}, and this program needs {} or later",
                     cuda_version(driver), cuda_version(CUDART_VERSION));
}

Result<std::unique_ptr<CudaDevice>> CudaDevice::open(int ordinal, Duration bound) {
  std::unique_ptr<CudaDevice> device(new CudaDevice(bound));
  RETURN_IF_ERROR(device->start(ordinal));
  MutexLock lock(opened_mutex);
  opened.push_back(device.get());
  return device;
}

Status CudaDevice::start(int ordinal) {
  int count = 0;
  RETURN_IF_ERROR(CUDA_STATUS(*this, cudaGetDeviceCount(&count), "looking for GPUs"));
  if (ordinal < 0 || ordinal >= count)
    return unavailable(fmt::format("there is no CUDA device {}: {} found", ordinal, count));
  ordinal_ = ordinal;
  RETURN_IF_ERROR(use());
  cudaDeviceProp properties{};
  RETURN_IF_ERROR(CUDA_STATUS(*this, cudaGetDeviceProperties(&properties, ordinal),
                              "asking what the GPU can do"));
  name_ = properties.name;
  major_ = properties.major;
  minor_ = properties.minor;
  multiprocessors_ = properties.multiProcessorCount;
  RETURN_IF_ERROR(CUDA_STATUS(*this, cudaDeviceGetDefaultMemPool(&pool_, ordinal),
                              "looking for the GPU's pool of memory"));
  uint64_t all = std::numeric_limits<uint64_t>::max();
  RETURN_IF_ERROR(CUDA_STATUS(*this,
                              cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &all),
                              "setting up the GPU's pool of memory"));
  int least = 0, greatest = 0;
  RETURN_IF_ERROR(CUDA_STATUS(*this, cudaDeviceGetStreamPriorityRange(&least, &greatest),
                              "asking for the priorities of streams"));
  RETURN_IF_ERROR(
      CUDA_STATUS(*this, cudaStreamCreateWithPriority(&compute_, cudaStreamNonBlocking, greatest),
                  "making the stream of steps"));
  RETURN_IF_ERROR(CUDA_STATUS(*this,
                              cudaStreamCreateWithPriority(&load_, cudaStreamNonBlocking, least),
                              "making the stream of loads"));
  MutexLock lock(mutex_);
  const cudaError_t made = cudaEventCreateWithFlags(&steps_, cudaEventDisableTiming);
  if (made != cudaSuccess)
    return internal_error(fmt::format("cudaEventCreateWithFlags: {} (making the event of steps)",
                                      cudaGetErrorString(made)));
  return {};
}

CudaDevice::~CudaDevice() {
  {
    MutexLock lock(opened_mutex);
    std::erase(opened, this);
  }
  // Memory that was given back in the order of a stream is back when the stream is done.
  for (cudaStream_t stream : {load_, compute_}) {
    if (stream == nullptr) continue;
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
  }
  MutexLock lock(mutex_);
  if (steps_ != nullptr) cudaEventDestroy(steps_);
}

void CudaDevice::wait_for_all() {
  MutexLock lock(opened_mutex);
  std::vector<cudaStream_t> streams;
  for (const CudaDevice* device : opened)
    streams.insert(streams.end(), {device->load_, device->compute_});
  for (cudaStream_t stream : streams) cudaStreamSynchronize(stream);
}

Status CudaDevice::use() {
  return CUDA_STATUS(*this, cudaSetDevice(ordinal_), fmt::format("choosing GPU {}", ordinal_));
}

Result<CudaEvent> CudaEvent::make(CudaDevice& device) {
  CudaEvent made;
  RETURN_IF_ERROR(CUDA_STATUS(
      device, cudaEventCreateWithFlags(&made.event_, cudaEventDisableTiming), "making an event"));
  return made;
}

Status CudaDevice::reach(const CudaDevice& other) {
  int can = 0;
  RETURN_IF_ERROR(CUDA_STATUS(*this, cudaDeviceCanAccessPeer(&can, ordinal_, other.ordinal_),
                              "asking which GPUs reach each other"));
  if (can == 0)
    return unimplemented(
        fmt::format("GPU {} cannot reach the memory of GPU {} (NVLink, or peer access over PCIe)",
                    ordinal_, other.ordinal_));
  const cudaError_t error = cudaDeviceEnablePeerAccess(other.ordinal_, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) return {};  // by a model before this one
  return check(error, "cudaDeviceEnablePeerAccess", "letting GPUs reach each other");
}

Status CudaDevice::check(cudaError_t error, std::string_view call, std::string_view purpose) {
  if (error == cudaSuccess) return {};
  const std::string_view name = call.substr(0, call.find('('));
  Status status(code_of(error), fmt::format("{}: {} ({}), while {}", name, cuda_reason(error),
                                            cudaGetErrorName(error), purpose));
  if (is_sticky(error)) fail(status);
  return status;
}

void CudaDevice::fail(const Status& why) {
  MutexLock lock(mutex_);
  if (!health_.ok()) return;
  health_ = why.in(fmt::format("GPU {} has failed", ordinal_));
  log_error("{}", health_.message());
}

Status CudaDevice::Pause::once(const char* purpose) {
  const Duration waited = Clock::real().now() - began_;
  if (waited > device_.bound_) {
    const Status late =
        unavailable(fmt::format("it did not get to the end of its work for {:g} s, while {}",
                                seconds(device_.bound_), purpose));
    // It may be a step that is slow, and then all goes on; whether one hangs its engine says.
    if (device_.steps_under_way())
      return late.in(fmt::format("GPU {} is at a step", device_.ordinal_));
    device_.fail(late);
  }
  RETURN_IF_ERROR(device_.health());  // of another wait, too
  if (waited < kAwake)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(kNap);
  return {};
}

Status CudaDevice::health() const {
  MutexLock lock(mutex_);
  return health_;
}

int64_t CudaDevice::free_bytes() {
  size_t left = 0, all = 0;
  if (!use().ok() || cudaMemGetInfo(&left, &all) != cudaSuccess) return 0;
  uint64_t reserved = 0, used = 0;
  if (cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved) != cudaSuccess ||
      cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &used) != cudaSuccess)
    return static_cast<int64_t>(left);
  return static_cast<int64_t>(left + (reserved - std::min(reserved, used)));
}

// What was given back in the order of a stream may count as used until the host has seen that the
// stream got there.
cudaError_t CudaDevice::trim() {
  const auto state = [&] { return cudaStreamQuery(load_); };
  if (!await(state, "cudaStreamQuery", "waiting for memory that loads gave back").ok())
    return cudaErrorNotReady;
  return cudaMemPoolTrimTo(pool_, 0);
}

Status CudaDevice::allocate(void** data, size_t bytes, const char* purpose) {
  cudaError_t error = cudaMalloc(data, bytes);
  if (error == cudaErrorMemoryAllocation && trim() == cudaSuccess) error = cudaMalloc(data, bytes);
  return check(error, "cudaMalloc", fmt::format("taking {} bytes for {}", bytes, purpose));
}

bool CudaDevice::steps_under_way() {
  MutexLock lock(mutex_);
  return cudaEventQuery(steps_) == cudaErrorNotReady;
}

Status CudaDevice::step_ended() {
  cudaError_t error = cudaSuccess;
  {
    MutexLock lock(mutex_);
    error = cudaEventRecord(steps_, compute_);
  }
  return check(error, "cudaEventRecord", "marking the end of a step");
}

Status CudaDevice::order_after_steps(cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  {
    MutexLock lock(mutex_);
    error = cudaStreamWaitEvent(stream, steps_, 0);
  }
  return check(error, "cudaStreamWaitEvent", "waiting for the steps that use a variant");
}

}  // namespace deltad
