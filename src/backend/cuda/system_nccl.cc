#include "backend/cuda/nccl_library.h"

namespace deltad {

Result<const NcclLibrary*> system_nccl() {
  static const Result<NcclLibrary> found = load_nccl("libnccl.so.2");
  if (!found.ok()) return found.status();
  return &*found;
}

}  // namespace deltad
