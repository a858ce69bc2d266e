#include "backend/cuda/communicator_choice.h"

#include <fmt/core.h>

#include "backend/cuda/cuda_communicator.h"
#include "backend/cuda/nccl_communicator.h"
#include "base/log.h"
#include "kernels/cuda/sum_parts.h"

namespace deltad {

Result<std::vector<std::unique_ptr<Communicator>>> make_chosen_communicators(
    CommunicatorChoice choice, const std::vector<CudaOps*>& ops, Duration bound,
    Duration least_connecting) {
  if (ops.size() > size_t{cuda::kMaxParts})
    return invalid_argument(fmt::format("{} ranks on GPUs: at most {} can add their parts",
                                        ops.size(), cuda::kMaxParts));
  std::string no_peers;
  if (choice != CommunicatorChoice::kNccl) {
    auto made = make_cuda_communicators(ops, bound);
    // Of another failure NCCL would not get the better.
    if (made.ok() || made.status().code() != Code::kUnimplemented) return made;
    if (choice == CommunicatorChoice::kPeer) return made.status().in("communicator: peer");
    no_peers = made.status().message();
  }
  const Result<const NcclLibrary*> nccl = system_nccl();
  if (!nccl.ok())
    return no_peers.empty() ? nccl.status().in("communicator: nccl")
                            : unimplemented(fmt::format("{}, and so ranks need NCCL: {}", no_peers,
                                                        nccl.status().message()));
  if (!no_peers.empty()) log_info("{}: NCCL brings the parts of sums together", no_peers);
  return make_nccl_communicators(**nccl, ops, bound, least_connecting);
}

}  // namespace deltad
