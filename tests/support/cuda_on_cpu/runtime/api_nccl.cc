// NCCL: communicators of ranks that are threads, or devices of one thread in a group; collectives
// as work of the ranks' streams. What a group sends and receives is one of them, in which all ranks
// must take part (NCCL itself asks only those who send or receive).
#include <atomic>
#include <cstring>
#include <utility>

#include "tests/support/cuda_on_cpu/runtime/communicator.h"
#include "tests/support/cuda_on_cpu/runtime/include/nccl.h"
#include "tests/support/cuda_on_cpu/runtime/stream.h"

using namespace deltad::emulated_gpu;

namespace {

// The calling thread's groups: how deep, and the ranks that others have to join before it goes on.
thread_local int group_depth = 0;
thread_local std::vector<std::shared_ptr<Ranks>> group_joins;
thread_local ncclResult_t group_error = ncclSuccess;
struct Exchange {
  ncclComm_t comm;
  CUstream_st* stream;
  std::vector<Transfer> transfers;
};
thread_local std::vector<Exchange> group_exchanges;

ncclResult_t result_of(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return ncclSuccess;
    case cudaErrorNotReady:
      return ncclInProgress;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidResourceHandle:
      return ncclInvalidArgument;
    case cudaErrorNotPermitted:
    case cudaErrorNotSupported:
      return ncclInvalidUsage;
    default:
      return ncclUnhandledCudaError;
  }
}

// The lock is the Call's, which the analysis does not see.
void wait_for_all(Gpu& gpu, const Ranks& ranks) NO_THREAD_SAFETY_ANALYSIS {
  while (ranks.joined < ranks.count) gpu.changed.wait(gpu.mutex);
}

ncclComm* add_rank(Call& call, Gpu& gpu, std::shared_ptr<Ranks> ranks, int rank, int device,
                   bool blocking = true) {
  ++ranks->joined;
  auto* comm = new ncclComm{std::move(ranks), rank, device};
  comm->blocking = blocking;
  gpu.handles.add_plain(comm, "communicator", call.site());
  gpu.changed.notify_all();
  return comm;
}

// Finds the collective that the rank's next one belongs to, for each time that the work is handed
// over (a graph's node may be many times).
std::shared_ptr<Collective> join(Gpu& gpu, ncclComm& comm, const CollectiveCall& call,
                                 const Part& part, const OperationPtr& operation) {
  Ranks& ranks = *comm.ranks;
  const uint64_t number = comm.next++;
  std::shared_ptr<RanksCollective>& found = ranks.open[number];
  if (!found) {
    found = std::make_shared<RanksCollective>();
    found->ranks = static_cast<size_t>(ranks.count);
    found->call = call;
    found->thread = std::this_thread::get_id();
    // Ranks may leave until it runs.
    found->run = [weak = std::weak_ptr(comm.ranks), number](Gpu& g) {
      const std::shared_ptr<Ranks> all = weak.lock();  // a rank that has not left owns it
      run_collective(g, *all->open.at(number));
      all->open.erase(number);
    };
  } else if (comm.blocking && found->thread == std::this_thread::get_id() && group_depth == 0) {
    gpu.fault(FaultKind::kMisuse,
              "one thread calls for several ranks without a group: " + operation->work->text());
  }
  if (found->call != call) {
    gpu.fault(FaultKind::kMisuse, "rank " + std::to_string(comm.rank) + " calls " + call.text() +
                                      ", another rank " + found->call.text() + ": " +
                                      operation->work->text());
    found->disagreed = true;
  }
  found->by_rank[comm.rank] = {operation, part};
  if (call.kind == CollectiveKind::kExchange && found->by_rank.size() == found->ranks) {
    if (const std::string what = mismatch(*found); !what.empty()) {
      gpu.fault(FaultKind::kMisuse, what + ": " + operation->work->text());
      found->disagreed = true;
    }
  }
  if (found->disagreed) {
    for (const auto& [rank, one] : found->by_rank) {
      gpu.fail(one.first->work->device, cudaErrorLaunchFailure);
    }
  }
  return found;
}

bool connected(const Gpu& gpu, const ncclComm& comm) {
  return comm.ranks->joined == comm.ranks->count && (!comm.stuck || gpu.let_go);
}

// Whether the communicator can be called, and for that stream and memory of its device.
cudaError_t check_comm(Call& call, Gpu& gpu, ncclComm_t comm) {
  if (!gpu.handles.has_plain(comm)) return call.misuse(cudaErrorInvalidValue, "no communicator");
  if (comm->finalized) return call.misuse(cudaErrorInvalidValue, "it is finalized");
  if (!comm->blocking && (comm->questions > 0 || !comm->ordered.empty() || !connected(gpu, *comm)))
    return call.misuse(cudaErrorInvalidValue, "before the call before it has ended");
  return cudaSuccess;
}

cudaError_t check_place(Call& call, Gpu& gpu, ncclComm_t comm, const CUstream_st& in,
                        std::initializer_list<const void*> buffers) {
  if (in.device != comm->device) {
    return call.misuse(cudaErrorInvalidValue, in.text() + ", not of the communicator's");
  }
  for (const void* buffer : buffers) {
    const Allocation* allocation = gpu.memory.find(buffer);
    if (allocation == nullptr || !allocation->on_device() || allocation->device != comm->device) {
      return call.misuse(cudaErrorInvalidValue, "memory that is not of the communicator's device");
    }
  }
  return cudaSuccess;
}

// On the stream at once, or, where calls do not block, when its state has been asked for.
cudaError_t order(Gpu& gpu, ncclComm_t comm, CUstream_st& in, Work work, const CollectiveCall& what,
                  const Part& part) {
  work.join = [=](Gpu& g, const OperationPtr& operation) -> std::shared_ptr<Collective> {
    if (g.handles.has_plain(comm)) return join(g, *comm, what, part, operation);
    g.fault(FaultKind::kMisuse, "its communicator is gone: " + operation->work->text());
    return nullptr;
  };
  if (comm->blocking) return hand_over(gpu, in, std::move(work));
  comm->ordered.push_back([&in, work = std::move(work), error = gpu.next_work_error,
                           hangs = gpu.next_work_hangs](Gpu& g) {
    g.next_work_error = error;
    g.next_work_hangs = hangs;
    return hand_over(g, in, work);
  });
  // Otherwise from call to call and rank to rank, and not at all now and then.
  const auto rank = static_cast<uint64_t>(comm->rank);
  comm->questions = gpu.options.order == Order::kEager ? 0 : (comm->next + rank) % 3;
  return cudaErrorNotReady;
}

ncclResult_t collect(Call& call, ncclComm_t comm, const CollectiveCall& what, const Part& part,
                     cudaStream_t stream) {
  return result_of(call.make([&](Gpu& gpu) -> cudaError_t {
    CUstream_st* in = stream_of(call, gpu, stream);
    if (in == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = check_comm(call, gpu, comm); error != cudaSuccess) return error;
    const cudaError_t error = check_place(call, gpu, comm, *in, {part.send, part.receive});
    if (error != cudaSuccess) return error;
    if (element_bytes(what.type) == 0) return cudaErrorNotSupported;
    if (what.root < 0 || what.root >= comm->ranks->count) return cudaErrorInvalidValue;
    if (what.kind == CollectiveKind::kAllGather) {
      const size_t bytes = what.count * element_bytes(what.type);
      const auto* receive = static_cast<const std::byte*>(part.receive);
      const auto* send = static_cast<const std::byte*>(part.send);
      const std::byte* own = receive + static_cast<size_t>(comm->rank) * bytes;
      const std::byte* end = receive + static_cast<size_t>(comm->ranks->count) * bytes;
      if (send != own && send < end && send + bytes > receive)
        return call.misuse(cudaErrorInvalidValue, "what is sent lies in what is received");
    }
    Work work = work_of(call, *in, WorkKind::kCollective);
    work.uses = {part.send, part.receive};
    return order(gpu, comm, *in, std::move(work), what, part);
  }));
}

// One of a group's, or alone.
ncclResult_t transfer(Call& call, ncclComm_t comm, const Transfer& what, cudaStream_t stream) {
  const ncclResult_t result = result_of(call.make([&](Gpu& gpu) -> cudaError_t {
    CUstream_st* in = stream_of(call, gpu, stream);
    if (in == nullptr) return cudaErrorInvalidResourceHandle;
    if (group_depth == 0)
      return call.misuse(cudaErrorNotSupported, "without a group, which the stand-in asks for");
    if (const cudaError_t error = check_comm(call, gpu, comm); error != cudaSuccess) return error;
    const cudaError_t error = check_place(call, gpu, comm, *in, {what.buffer});
    if (error != cudaSuccess) return error;
    if (what.peer < 0 || what.peer >= comm->ranks->count || what.peer == comm->rank ||
        element_bytes(what.type) == 0)
      return cudaErrorInvalidValue;
    for (Exchange& exchange : group_exchanges) {
      if (exchange.comm != comm) continue;
      if (exchange.stream != in) return call.misuse(cudaErrorInvalidValue, "another stream");
      for (const Transfer& other : exchange.transfers) {
        const auto begin = [](const Transfer& t) {
          return static_cast<const std::byte*>(t.buffer);
        };
        const auto end = [&](const Transfer& t) {
          return begin(t) + t.count * element_bytes(t.type);
        };
        const bool reads = what.sends && other.sends;
        if (!reads && begin(what) < end(other) && begin(other) < end(what))
          return call.misuse(cudaErrorInvalidValue, "memory of another one of the group");
      }
      exchange.transfers.push_back(what);
      return cudaSuccess;
    }
    group_exchanges.push_back({comm, in, {what}});
    return cudaSuccess;
  }));
  if (result != ncclSuccess && group_depth > 0 && group_error == ncclSuccess) group_error = result;
  return result;
}

cudaError_t remove_comm(Call& call, Gpu& gpu, ncclComm_t comm, bool abort) {
  if (!gpu.handles.remove_plain(comm)) {
    return call.misuse(cudaErrorInvalidValue, "no such communicator");
  }
  for (auto& [number, collective] : comm->ranks->open) {
    const auto own = collective->by_rank.find(comm->rank);
    if (own == collective->by_rank.end()) continue;
    if (!abort) call.misuse(cudaErrorInvalidValue, "a collective is under way");
    gpu.schedule.drop_out(*own->second.first);
    collective->by_rank.erase(own);
  }
  delete comm;
  return cudaSuccess;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  EMULATED_CALL(ncclGetUniqueId);
  return result_of(call.make([&](Gpu&) -> cudaError_t {
    static std::atomic<uint64_t> next = 1;
    const uint64_t id = next++;
    *uniqueId = {};
    std::memcpy(uniqueId->internal, &id, sizeof id);
    return cudaSuccess;
  }));
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  EMULATED_CALL(ncclCommInitRank);
  return result_of(call.make([&](Gpu& gpu) -> cudaError_t {
    if (nranks < 1 || rank < 0 || rank >= nranks) return cudaErrorInvalidValue;
    std::shared_ptr<Ranks>& ranks = gpu.ranks[std::string(commId.internal, sizeof commId.internal)];
    if (!ranks) ranks = std::make_shared<Ranks>(Ranks{.count = nranks});
    if (ranks->count != nranks) return call.misuse(cudaErrorInvalidValue, "ranks disagree");
    *comm = add_rank(call, gpu, ranks, rank, current_device());
    if (group_depth > 0) {
      group_joins.push_back(ranks);
    } else {
      wait_for_all(gpu, *std::shared_ptr<Ranks>(ranks));
    }
    return cudaSuccess;
  }));
}

// With a configuration that says so, does not wait for the other ranks.
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config) {
  EMULATED_CALL(ncclCommInitRankConfig);
  return result_of(call.make([&](Gpu& gpu) -> cudaError_t {
    if (nranks < 1 || rank < 0 || rank >= nranks) return cudaErrorInvalidValue;
    const ncclConfig_t& expected = deltad::kNonBlockingNccl;
    if (config->size != expected.size || config->magic != expected.magic ||
        config->version != expected.version || config->blocking != 0) {
      return call.misuse(cudaErrorInvalidValue, "a configuration that is none, or blocks");
    }
    std::shared_ptr<Ranks>& ranks = gpu.ranks[std::string(commId.internal, sizeof commId.internal)];
    if (!ranks) ranks = std::make_shared<Ranks>(Ranks{.count = nranks});
    if (ranks->count != nranks) return call.misuse(cudaErrorInvalidValue, "ranks disagree");
    *comm = add_rank(call, gpu, ranks, rank, current_device(), false);
    (*comm)->stuck = gpu.next_work_hangs;
    (*comm)->questions = gpu.options.order == Order::kEager ? 0 : 2;
    return cudaErrorNotReady;
  }));
}

ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  EMULATED_CALL(ncclCommInitAll);
  return result_of(call.make([&](Gpu& gpu) -> cudaError_t {
    if (ndev < 1 || ndev > gpu.options.devices) return cudaErrorInvalidValue;
    const auto ranks = std::make_shared<Ranks>(Ranks{.count = ndev});
    for (int i = 0; i < ndev; ++i) {
      comm[i] = add_rank(call, gpu, ranks, i, devlist == nullptr ? i : devlist[i]);
    }
    return cudaSuccess;
  }));
}

// The ranks part when all have come to it.
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  EMULATED_CALL(ncclCommFinalize);
  return result_of(call.make([&](Gpu& gpu) -> cudaError_t {
    if (const cudaError_t error = check_comm(call, gpu, comm); error != cudaSuccess) return error;
    for (const auto& [number, collective] : comm->ranks->open) {
      if (collective->by_rank.contains(comm->rank))
        return call.misuse(cudaErrorInvalidValue, "a collective is under way");
    }
    comm->finalized = true;
    ++comm->ranks->finalized;
    return comm->blocking ? cudaSuccess : cudaErrorNotReady;
  }));
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  EMULATED_CALL(ncclCommDestroy, CallKind::kReleases);
  return result_of(call.make([&](Gpu& gpu) -> cudaError_t {
    if (gpu.handles.has_plain(comm) && !comm->blocking && !comm->finalized)
      call.misuse(cudaErrorInvalidValue, "it is not finalized");
    return remove_comm(call, gpu, comm, false);
  }));
}

// Work of this rank that waits for others is over, without a result.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  EMULATED_CALL(ncclCommAbort, CallKind::kReleases);
  // The lock is the Call's, which the analysis does not see.
  return result_of(call.make([&](Gpu& gpu) NO_THREAD_SAFETY_ANALYSIS -> cudaError_t {
    while (gpu.options.nccl_abort_waits && !gpu.let_go) gpu.changed.wait(gpu.mutex);
    return remove_comm(call, gpu, comm, true);
  }));
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  EMULATED_CALL(ncclCommGetAsyncError, CallKind::kOrders);
  return result_of(call.make([&](Gpu& gpu) -> cudaError_t {
    if (!gpu.handles.has_plain(comm)) return call.misuse(cudaErrorInvalidValue, "no communicator");
    const cudaError_t broken = gpu.devices[static_cast<size_t>(comm->device)].error;
    *asyncError = result_of(broken);
    if (broken != cudaSuccess) return cudaSuccess;
    const bool waits = comm->questions > 0 || !connected(gpu, *comm) ||
                       (comm->finalized && comm->ranks->finalized < comm->ranks->count);
    if (comm->questions > 0) --comm->questions;
    if (waits) {
      *asyncError = ncclInProgress;
      return cudaSuccess;
    }
    for (const auto& hand_over : std::exchange(comm->ordered, {})) {
      const ncclResult_t result = result_of(hand_over(gpu));
      if (*asyncError == ncclSuccess) *asyncError = result;
    }
    return cudaSuccess;
  }));
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->ranks->count;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->device;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  EMULATED_CALL(ncclAllReduce);
  return collect(call, comm, {CollectiveKind::kAllReduce, count, datatype, op, 0},
                 {sendbuff, recvbuff}, stream);
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  EMULATED_CALL(ncclAllGather);
  return collect(call, comm, {CollectiveKind::kAllGather, sendcount, datatype, ncclSum, 0},
                 {sendbuff, recvbuff}, stream);
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  EMULATED_CALL(ncclBroadcast);
  return collect(call, comm, {CollectiveKind::kBroadcast, count, datatype, ncclSum, root},
                 {sendbuff, recvbuff}, stream);
}

ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  EMULATED_CALL(ncclReduce);
  return collect(call, comm, {CollectiveKind::kReduce, count, datatype, op, root},
                 {sendbuff, recvbuff}, stream);
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  EMULATED_CALL(ncclSend);
  return transfer(call, comm, {true, peer, sendbuff, count, datatype}, stream);
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  EMULATED_CALL(ncclRecv);
  return transfer(call, comm, {false, peer, recvbuff, count, datatype}, stream);
}

ncclResult_t ncclGroupStart() {
  EMULATED_CALL(ncclGroupStart);
  return result_of(call.make([&](Gpu&) -> cudaError_t {
    ++group_depth;
    return cudaSuccess;
  }));
}

// A group of which a call has failed does nothing.
ncclResult_t ncclGroupEnd() {
  EMULATED_CALL(ncclGroupEnd, CallKind::kReleases);
  ncclResult_t before = ncclSuccess;
  const ncclResult_t result = result_of(call.make([&](Gpu& gpu) -> cudaError_t {
    if (group_depth == 0) return call.misuse(cudaErrorNotPermitted, "no group was started");
    if (--group_depth > 0) return cudaSuccess;
    before = std::exchange(group_error, ncclSuccess);
    for (const auto& ranks : std::exchange(group_joins, {})) wait_for_all(gpu, *ranks);
    cudaError_t state = cudaSuccess;
    for (const Exchange& exchange : std::exchange(group_exchanges, {})) {
      if (before != ncclSuccess) continue;
      Work work = work_of(call, *exchange.stream, WorkKind::kCollective);
      for (const Transfer& one : exchange.transfers) work.uses.push_back(one.buffer);
      const cudaError_t ordered = order(gpu, exchange.comm, *exchange.stream, std::move(work),
                                        {CollectiveKind::kExchange, 0, ncclUint8, ncclSum, 0},
                                        {nullptr, nullptr, exchange.transfers});
      if (state == cudaSuccess || ordered != cudaErrorNotReady) state = ordered;
    }
    return state;
  }));
  return before != ncclSuccess ? before : result;
}
