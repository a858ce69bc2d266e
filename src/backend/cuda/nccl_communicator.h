// Communicators of ranks that have a GPU each, in one process, and whose GPUs need not reach each
// other's memory: NCCL brings the parts of a sum together, by whatever way there is, and each GPU
// adds them in its own memory, in the order of the ranks. NCCL itself adds nothing: its order would
// follow from the number of elements.
#pragma once

#include <memory>
#include <vector>

#include "backend/communicator.h"
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/nccl_library.h"
#include "base/clock.h"

namespace deltad {

// One a rank, for ops that outlive it. bound: as of RankMeeting, for the ranks' threads and for
// their GPUs; least_connecting: connecting them may take so long all the same.
Result<std::vector<std::unique_ptr<Communicator>>> make_nccl_communicators(
    const NcclLibrary& nccl, const std::vector<CudaOps*>& ops, Duration bound,
    Duration least_connecting);

}  // namespace deltad
