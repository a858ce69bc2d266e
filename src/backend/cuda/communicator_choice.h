// Which communicators ranks on GPUs get: the config's choice, made real.
#pragma once

#include <memory>
#include <vector>

#include "backend/communicator.h"
#include "backend/cuda/cuda_ops.h"
#include "base/clock.h"

namespace deltad {

// One a rank, for ops that outlive it. kUnimplemented if there is no way from GPU to GPU as chosen.
// bound, least_connecting: as of make_nccl_communicators.
Result<std::vector<std::unique_ptr<Communicator>>> make_chosen_communicators(
    CommunicatorChoice choice, const std::vector<CudaOps*>& ops, Duration bound,
    Duration least_connecting);

}  // namespace deltad
