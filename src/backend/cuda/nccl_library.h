// NcclLibrary: NCCL's functions, found when the program runs: it is 200 MB, and who has one GPU, or
// GPUs that reach each other's memory, needs none. Any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include "backend/cuda/nccl_abi.h"
#include "base/status.h"

namespace deltad {

struct NcclLibrary {
  ncclResult_t (*get_version)(int* version);
  const char* (*get_error_string)(ncclResult_t result);
  const char* (*get_last_error)(ncclComm_t comm);
  ncclResult_t (*get_unique_id)(ncclUniqueId* id);
  ncclResult_t (*comm_init_rank_config)(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                        ncclConfig_t* config);
  ncclResult_t (*comm_get_async_error)(ncclComm_t comm, ncclResult_t* state);
  ncclResult_t (*comm_finalize)(ncclComm_t comm);
  ncclResult_t (*comm_destroy)(ncclComm_t comm);
  ncclResult_t (*comm_abort)(ncclComm_t comm);
  ncclResult_t (*all_gather)(const void* send, void* receive, size_t send_count,
                             ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
  ncclResult_t (*send)(const void* from, size_t count, ncclDataType_t type, int to, ncclComm_t comm,
                       cudaStream_t stream);
  ncclResult_t (*receive)(void* to, size_t count, ncclDataType_t type, int from, ncclComm_t comm,
                          cudaStream_t stream);
  ncclResult_t (*group_start)();
  ncclResult_t (*group_end)();

  // "2.28.9".
  std::string version() const;
  // What is wrong, if anything: an operation that is under way is not. comm: null, or the one that
  // was called for.
  Status check(ncclResult_t result, ncclComm_t comm, std::string_view call,
               std::string_view purpose) const;
};

// kUnimplemented, with what brings it, if there is no such file or it is none or too old.
Result<NcclLibrary> load_nccl(const std::string& file);
// This machine's, loaded once. An emulated GPU has a stand-in (tests/cuda/emulated_nccl.cc).
Result<const NcclLibrary*> system_nccl();

}  // namespace deltad
