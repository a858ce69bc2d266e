// CudaBackend's front door. No CUDA header is needed to include it, and it is there in every build:
// cuda_backend.cc, or, in a build without CUDA, backend/without_cuda.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/communicator.h"
#include "base/clock.h"

namespace deltad {

struct CudaBackendOptions {
  int device = 0;        // CUDA's number of it
  int host_threads = 0;  // for sampling; 0: one a core, at most four
  // A GPU that keeps a load waiting for longer has failed.
  Duration patience = std::chrono::seconds(60);
};

// kUnavailable if there is no such GPU or no driver, kUnimplemented if this program cannot use it.
Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaBackendOptions& options);

// One backend and one communicator a rank, in their order.
struct CudaRanks {
  std::vector<std::unique_ptr<Backend>> backends;
  std::vector<std::unique_ptr<Communicator>> communicators;  // end before the backends
};

// Ranks of tensor parallelism on CUDA's devices 0 to ranks − 1. A rank, or its GPU, that the others
// have waited for longer than `bound` has failed; NCCL may take least_connecting to connect them
// all the same. Errors as above; kUnimplemented also if there is no way from GPU to GPU as it is
// chosen.
Result<CudaRanks> make_cuda_ranks(int ranks, Duration bound,
                                  CommunicatorChoice choice = CommunicatorChoice::kAuto,
                                  Duration least_connecting = std::chrono::seconds(60));

// "CUDA 13.0 (no GPU: …)", "not built in": what make_cuda_backend has to offer here.
std::string describe_cuda();

}  // namespace deltad
