// NCCL's names, values and types, as far as ranks on GPUs use them. NCCL's own header is not part
// of CUDA's toolkit, and the library is found when the program runs (nccl_library.h). A test
// compares them with the header where it is found (toolkit_test.cc).
#pragma once

#include <cstddef>

typedef struct ncclComm* ncclComm_t;

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclNumResults = 8,
} ncclResult_t;

typedef enum {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
} ncclDataType_t;

// As NCCL 2.14 had it. Later versions have more behind it, and take what `size` does not reach as
// not set.
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
} ncclConfig_t;

namespace deltad {

constexpr int kOldestNccl = 21400;  // the first whose calls need not block
// Calls come back at once, and ncclCommGetAsyncError says what has become of them.
constexpr ncclConfig_t kNonBlockingNccl = {sizeof(ncclConfig_t), 0xcafebeefu, unsigned{kOldestNccl},
                                           0};

}  // namespace deltad
