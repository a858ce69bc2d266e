#include "deltad/device.h"

#include <fmt/core.h>

#include "backend/cuda/cuda_backend.h"
#include "base/cpu_features.h"
#include "base/log.h"

namespace deltad {

bool parse_device(const std::string& text, DeviceChoice* choice) {
  for (const DeviceChoice one : {DeviceChoice::kAuto, DeviceChoice::kCpu, DeviceChoice::kCuda}) {
    if (text != device_name(one)) continue;
    *choice = one;
    return true;
  }
  return false;
}

const char* device_name(DeviceChoice choice) {
  switch (choice) {
    case DeviceChoice::kAuto:
      return "auto";
    case DeviceChoice::kCpu:
      return "cpu";
    case DeviceChoice::kCuda:
      return "cuda";
  }
  return "";
}

bool parse_communicator(const std::string& text, CommunicatorChoice* choice) {
  for (const CommunicatorChoice one :
       {CommunicatorChoice::kAuto, CommunicatorChoice::kPeer, CommunicatorChoice::kNccl}) {
    if (text != communicator_name(one)) continue;
    *choice = one;
    return true;
  }
  return false;
}

const char* communicator_name(CommunicatorChoice choice) {
  switch (choice) {
    case CommunicatorChoice::kAuto:
      return "auto";
    case CommunicatorChoice::kPeer:
      return "peer";
    case CommunicatorChoice::kNccl:
      return "nccl";
  }
  return "";
}

Result<std::unique_ptr<Backend>> make_backend(DeviceChoice choice, const CpuBackendOptions& cpu,
                                              Duration patience) {
  if (choice == DeviceChoice::kCpu) return make_cpu_backend(cpu);
  CudaBackendOptions options;
  options.patience = patience;
  Result<std::unique_ptr<Backend>> gpu = make_cuda_backend(options);
  if (gpu.ok()) return gpu;
  if (choice == DeviceChoice::kCuda) return gpu.status().in("device: cuda");
  log_info("device: auto: the CPU is used, for no GPU can be ({})", gpu.status().message());
  return make_cpu_backend(cpu);
}

Result<std::unique_ptr<ParallelBackend>> make_parallel_backend(DeviceChoice choice,
                                                               CommunicatorChoice communicator,
                                                               const ModelConfig& config,
                                                               const CpuBackendOptions& cpu,
                                                               const ParallelOptions& options) {
  if (choice == DeviceChoice::kCpu) return make_parallel_cpu_backend(config, cpu, options);
  // Before GPUs are taken.
  RETURN_IF_ERROR(ShardMap::make(config, options.ranks).status());
  Result<CudaRanks> gpus = make_cuda_ranks(options.ranks, options.patience, communicator);
  if (gpus.ok())
    return ParallelBackend::make(config, std::move(gpus->backends), std::move(gpus->communicators));
  if (choice == DeviceChoice::kCuda) return gpus.status().in("device: cuda");
  // Only GPUs have one to choose.
  if (communicator != CommunicatorChoice::kAuto)
    return gpus.status().in(
        fmt::format("device: auto with communicator: {}", communicator_name(communicator)));
  log_info("device: auto: the CPU is used, for no {} GPUs can be ({})", options.ranks,
           gpus.status().message());
  return make_parallel_cpu_backend(config, cpu, options);
}

std::vector<std::string> backend_list(DeviceChoice choice) {
  return {fmt::format("CPU, {}", isa_name(best_isa())),
          choice == DeviceChoice::kCpu ? "CUDA: not asked (device: cpu)" : describe_cuda()};
}

}  // namespace deltad
