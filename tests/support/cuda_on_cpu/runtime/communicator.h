// NCCL's communicators: ranks that meet by an id, and the collectives that they are in. Under the
// runtime's lock.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/cuda_on_cpu/runtime/gpu.h"
#include "tests/support/cuda_on_cpu/runtime/include/nccl.h"

namespace deltad::emulated_gpu {

// kExchange: all that a group sends and receives.
enum class CollectiveKind : uint8_t { kAllReduce, kAllGather, kBroadcast, kReduce, kExchange };

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

// What a rank sends to another one, or receives from it.
struct Transfer {
  bool sends;
  int peer;
  const void* buffer;
  size_t count;
  ncclDataType_t type;
};

// The part of a rank, with its buffers.
struct Part {
  const void* send;
  void* receive;
  std::vector<Transfer> transfers = {};  // of an exchange
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
  int finalized = 0;
  std::map<uint64_t, std::shared_ptr<RanksCollective>> open = {};  // by number
};

// What does not fit together in an exchange to which all ranks have come; "" if all does.
std::string mismatch(const RanksCollective& exchange);

size_t element_bytes(ncclDataType_t type);  // 0: not supported

// Carries it out, for all ranks. Sums go around a ring, which begins elsewhere in each part of the
// data, as NCCL's do: the order follows from the count.
void run_collective(Gpu& gpu, const RanksCollective& collective);

}  // namespace deltad::emulated_gpu

struct ncclComm {
  std::shared_ptr<deltad::emulated_gpu::Ranks> ranks;
  int rank, device;
  uint64_t next = 0;  // collective's number
  // Of one whose calls do not block: what they ordered, which is on no stream before somebody has
  // asked for the state so often. Nothing else may be asked for in the meantime.
  bool blocking = true;
  std::vector<std::function<cudaError_t(deltad::emulated_gpu::Gpu&)>> ordered = {};
  uint64_t questions = 0;
  bool stuck = false;  // it never connects, until emulated_gpu::let_go()
  bool finalized = false;
};
