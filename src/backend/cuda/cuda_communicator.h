// Communicators of ranks that have a GPU each, in one process: sums over the memory of all GPUs,
// which each of them reads (NVLink), ordered by events between their streams of steps.
#pragma once

#include <memory>
#include <vector>

#include "backend/communicator.h"
#include "backend/cuda/cuda_ops.h"
#include "base/clock.h"

namespace deltad {

// One a rank, at most cuda::kMaxParts, for ops that outlive it. kUnimplemented if two of the GPUs
// cannot reach each other's memory. bound: as of RankMeeting, for the ranks' threads and for their
// GPUs.
Result<std::vector<std::unique_ptr<Communicator>>> make_cuda_communicators(
    const std::vector<CudaOps*>& ops, Duration bound);

}  // namespace deltad
