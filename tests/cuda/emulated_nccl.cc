// The emulated GPUs' NCCL, in the place of src/backend/cuda/system_nccl.cc.
#include <nccl.h>

#include "backend/cuda/nccl_library.h"
#include "tests/support/cuda_on_cpu/runtime/emulated_gpu.h"

namespace deltad {

Result<const NcclLibrary*> system_nccl() {
  static const NcclLibrary nccl = {
      ncclGetVersion,         ncclGetErrorString,    ncclGetLastError, ncclGetUniqueId,
      ncclCommInitRankConfig, ncclCommGetAsyncError, ncclCommFinalize, ncclCommDestroy,
      ncclCommAbort,          ncclAllGather,         ncclSend,         ncclRecv,
      ncclGroupStart,         ncclGroupEnd};
  if (emulated_gpu::has_nccl()) return &nccl;
  return load_nccl("libnccl.so.2-that-is-not-here").status();
}

}  // namespace deltad
