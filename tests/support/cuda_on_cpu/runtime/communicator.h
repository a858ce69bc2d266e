// NCCL's communicators: ranks that meet by an id, and the collectives that they are in. Under the
// runtime's lock.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/cuda_on_cpu/runtime/gpu.h"
#include "tests/support/cuda_on_cpu/runtime/include/nccl.h"

namespace deltad::emulated_gpu {

enum class CollectiveKind : uint8_t { kAllReduce, kAllGather, kBroadcast, kReduce };

// What all ranks must agree on.
struct CollectiveCall {
  CollectiveKind kind;
  size_t count;  // elements that a rank sends
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;

  bool operator==(const CollectiveCall&) const = default;
  std::string text() const;
};

// The part of a rank, with its buffers.
struct Part {
  const void* send;
  void* receive;
};

// A collective on its way.
struct RanksCollective : Collective {
  CollectiveCall call;
  std::map<int, std::pair<OperationPtr, Part>> by_rank;
  std::thread::id thread;  // of the rank that came first
  bool disagreed = false;
};

// All ranks of one id.
struct Ranks {
  int count = 0;
  int joined = 0;
  std::map<uint64_t, std::shared_ptr<RanksCollective>> open = {};  // by number
};

size_t element_bytes(ncclDataType_t type);  // 0: not supported

// Carries it out, for all ranks. Sums go around a ring, which begins elsewhere in each part of the
// data, as NCCL's do: the order follows from the count.
void run_collective(Gpu& gpu, const RanksCollective& collective);

}  // namespace deltad::emulated_gpu

struct ncclComm {
  std::shared_ptr<deltad::emulated_gpu::Ranks> ranks;
  int rank, device;
  uint64_t next = 0;  // collective's number
};
