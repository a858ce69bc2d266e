// Which backend runs the model: the config's `device`, made real. Main and loading threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "parallel/parallel_backend.h"

namespace deltad {

enum class DeviceChoice {
  kAuto,  // a GPU if there is one that works, else the CPU
  kCpu,
  kCuda,
};

// "auto", "cpu", "cuda"; false if it is none of them.
bool parse_device(const std::string& text, DeviceChoice* choice);
const char* device_name(DeviceChoice choice);

// "auto", "peer", "nccl"; false if it is none of them.
bool parse_communicator(const std::string& text, CommunicatorChoice* choice);
const char* communicator_name(CommunicatorChoice choice);

// kCuda fails where there is no GPU; kAuto says in the log why it takes the CPU.
// patience: a GPU that keeps a load waiting for longer has failed.
Result<std::unique_ptr<Backend>> make_backend(DeviceChoice choice, const CpuBackendOptions& cpu,
                                              Duration patience = std::chrono::seconds(60));

// The same with several ranks: a GPU each, or this machine's processors, which have one way of
// making sums only.
Result<std::unique_ptr<ParallelBackend>> make_parallel_backend(DeviceChoice choice,
                                                               CommunicatorChoice communicator,
                                                               const ModelConfig& config,
                                                               const CpuBackendOptions& cpu,
                                                               const ParallelOptions& options);

// What this program has on this machine, a line each: "CPU, avx2", "CUDA 13.0 (no GPU: …)". With
// kCpu no driver is asked.
std::vector<std::string> backend_list(DeviceChoice choice);

}  // namespace deltad
