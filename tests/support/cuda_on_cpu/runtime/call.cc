#include "tests/support/cuda_on_cpu/runtime/call.h"

#include <algorithm>
#include <memory>
#include <string_view>

namespace deltad::emulated_gpu {
namespace {

std::unique_ptr<Gpu> first() {
  const Settings settings = settings_of_environment();
  auto made = std::make_unique<Gpu>(settings.options);
  made->failures = settings.failures;
  made->off.insert(settings.off.begin(), settings.off.end());
  return made;
}

// Never destroyed: the program's own objects that are may call the runtime.
std::unique_ptr<Gpu>& owner() {
  static auto* gpus = new std::unique_ptr<Gpu>(first());
  return *gpus;
}

}  // namespace

Gpu& gpu() { return *owner(); }

void reset(const Options& options) {
  owner() = nullptr;  // its addresses are free before the new one takes some
  owner() = std::make_unique<Gpu>(options);
  current_device() = 0;
  last_error() = cudaSuccess;
}

int& current_device() {
  static thread_local int device = 0;
  return device;
}

cudaError_t& last_error() {
  static thread_local cudaError_t error = cudaSuccess;
  return error;
}

// The lock is taken here and given back in ~Call: the analysis cannot follow it through gpu().
Call::Call(const char* name, const void* return_address, const void* frame,
           CallKind kind) NO_THREAD_SAFETY_ANALYSIS
    : gpu_(gpu()),
      name_(name),
      kind_(kind),
      site_(CallSite::of(return_address, frame, static_cast<size_t>(gpu_.options.site_frames))) {
  gpu_.mutex.lock();
}

Call::~Call() NO_THREAD_SAFETY_ANALYSIS { gpu_.mutex.unlock(); }

cudaError_t Call::device_error() const {
  return gpu_.devices[static_cast<size_t>(current_device())].error;
}

cudaError_t Call::begin() {
  const int device = current_device();
  const size_t number = gpu_.calls.size(), of_device = gpu_.calls_of[device]++,
               of_name = gpu_.calls_of_name[{device, name_}]++;
  const auto [site, added] =
      gpu_.sites.try_emplace(site_, static_cast<uint32_t>(gpu_.sites.size()));
  if (added) gpu_.site_keys.push_back(site_.key());
  gpu_.calls.push_back({name_, site->second, device});
  gpu_.schedule.at_call();
  if (Schedule::on_driver_thread()) {
    return misuse(cudaErrorNotPermitted, "a host function calls the runtime");
  }
  if (kind_ == CallKind::kOrders) {
    const std::string& key = gpu_.site_keys[site->second];
    const auto same = [&](const SyncSite& site) { return site.key == key; };
    if (std::none_of(gpu_.sync_sites.begin(), gpu_.sync_sites.end(), same)) {
      gpu_.sync_sites.push_back({key, name_});
    }
    skip_ = gpu_.off.contains(key);
  }
  gpu_.next_work_error = cudaSuccess;
  gpu_.next_work_hangs = false;
  for (const Failure& failure : gpu_.failures) {
    if (failure.device >= 0 && failure.device != device) continue;
    if (!failure.name.empty() && failure.name != name_) continue;
    const size_t counted = failure.device < 0 ? number : failure.name.empty() ? of_device : of_name;
    if (failure.call != counted) continue;
    const auto error = static_cast<cudaError_t>(failure.error);
    if (failure.hangs) {
      gpu_.next_work_hangs = true;
      continue;
    }
    if (failure.at_execution) {
      gpu_.next_work_error = error;
      continue;
    }
    if (failure.sticky) gpu_.fail(current_device(), error);
    return error;
  }
  if (gpu_.options.devices == 0) return cudaErrorNoDevice;
  // Another device is chosen, whatever has become of the one before.
  return std::string_view(name_) == "cudaSetDevice" ? cudaSuccess : device_error();
}

cudaError_t Call::end(cudaError_t result) {
  gpu_.next_work_error = cudaSuccess;
  gpu_.next_work_hangs = false;
  if (result != cudaSuccess && result != cudaErrorNotReady) last_error() = result;
  return result;
}

cudaError_t Call::misuse(cudaError_t error, const std::string& what) {
  gpu_.fault(FaultKind::kMisuse, std::string(name_) + " at " + site_.text() + ": " + what);
  return error;
}

}  // namespace deltad::emulated_gpu
