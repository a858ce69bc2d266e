#include "tests/support/cuda_on_cpu/runtime/gpu.h"

namespace deltad::emulated_gpu {

Gpu::Gpu(const Options& o)
    : options(o), devices(static_cast<size_t>(o.devices)), memory(*this), schedule(*this) {
  for (int i = 0; i < o.devices; ++i) {
    auto stream = std::make_unique<CUstream_st>();
    stream->kind = "stream";
    stream->device = i;
    stream->timeline = schedule.new_timeline();
    devices[static_cast<size_t>(i)].null_stream = std::move(stream);
  }
}

Gpu::~Gpu() { schedule.stop(); }

void Gpu::fail(int device, cudaError_t error) {
  cudaError_t& sticky = devices[static_cast<size_t>(device)].error;
  if (sticky == cudaSuccess) sticky = error;
}

std::string Handles::leaks() const {
  std::string all;
  const auto add = [&](const auto& table) {
    for (const auto& [address, handle] : table) {
      if (handle->destroyed) continue;
      all += std::string(handle->kind) + " made at " + handle->made_at.text() + "\n";
    }
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
