#include "tests/support/cuda_on_cpu/runtime/gpu.h"

#include <algorithm>

namespace deltad::emulated_gpu {

// Threads have a current device even where there is none.
Gpu::Gpu(const Options& o)
    : options(o),
      devices(static_cast<size_t>(std::max(1, o.devices))),
      memory(*this),
      schedule(*this) {
  for (size_t i = 0; i < devices.size(); ++i) {
    for (auto* made : {&devices[i].null_stream, &devices[i].stray}) {
      *made = std::make_unique<CUstream_st>();
      (*made)->kind = "stream";
      (*made)->device = static_cast<int>(i);
      (*made)->timeline = schedule.new_timeline();
    }
    devices[i].stray->flags = cudaStreamNonBlocking;
  }
}

Gpu::~Gpu() { schedule.stop(); }

void Gpu::fault(FaultKind kind, std::string what) {
  constexpr size_t kMost = 1000;  // one mistake in a loop
  if (faults.size() < kMost) faults.push_back({kind, std::move(what)});
}

void Gpu::fail(int device, cudaError_t error) {
  cudaError_t& sticky = devices[static_cast<size_t>(device)].error;
  if (sticky == cudaSuccess) sticky = error;
  changed.notify_all();
}

std::string Handles::leaks() const {
  std::string all;
  const auto tell = [&](const Handle& handle) {
    if (!handle.destroyed) {
      all += std::string(handle.kind) + " made at " + handle.made_at.text() + "\n";
    }
  };
  for (const auto& [address, handle] : plain_) tell(handle);
  const auto add = [&](const auto& table) {
    for (const auto& handle : table.made) tell(*handle);
  };
  // Kernels go with their library.
  std::apply(
      [&](const auto& streams, const auto& events, const auto& graphs, const auto& execs,
          const auto& libraries,
          const auto&) { add(streams), add(events), add(graphs), add(execs), add(libraries); },
      tables_);
  return all;
}

}  // namespace deltad::emulated_gpu

std::string CUstream_st::text() const {
  return (number == 0 ? "the null stream" : "stream " + std::to_string(number)) + " of device " +
         std::to_string(device);
}
