// NCCL: communicators of ranks that are threads, or devices of one thread in a group; collectives
// as work of the ranks' streams.
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

ncclResult_t result_of(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return ncclSuccess;
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

ncclComm* add_rank(Call& call, Gpu& gpu, std::shared_ptr<Ranks> ranks, int rank, int device) {
  ++ranks->joined;
  auto* comm = new ncclComm{std::move(ranks), rank, device};
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
    // Not found by itself: what it holds would never be freed.
    found->run = [all = std::weak_ptr(found)](Gpu& g) { run_collective(g, *all.lock()); };
  } else if (found->thread == std::this_thread::get_id() && group_depth == 0) {
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
  if (found->disagreed) {
    for (const auto& [rank, one] : found->by_rank) {
      gpu.fail(one.first->work->device, cudaErrorLaunchFailure);
    }
  }
  const std::shared_ptr<RanksCollective> collective = found;
  if (collective->by_rank.size() == collective->ranks) ranks.open.erase(number);
  return collective;
}

ncclResult_t collect(Call& call, ncclComm_t comm, const CollectiveCall& what, const Part& part,
                     cudaStream_t stream) {
  return result_of(call.make([&](Gpu& gpu) -> cudaError_t {
    CUstream_st* in = stream_of(call, gpu, stream);
    if (in == nullptr) return cudaErrorInvalidResourceHandle;
    if (!gpu.handles.has_plain(comm)) return call.misuse(cudaErrorInvalidValue, "no communicator");
    if (in->device != comm->device) {
      return call.misuse(cudaErrorInvalidValue, in->text() + ", not of the communicator's");
    }
    if (element_bytes(what.type) == 0) return cudaErrorNotSupported;
    if (what.root < 0 || what.root >= comm->ranks->count) return cudaErrorInvalidValue;
    Work work = work_of(call, *in, WorkKind::kCollective);
    work.uses = {part.send, part.receive};
    work.join = [=](Gpu& g, const OperationPtr& operation) -> std::shared_ptr<Collective> {
      if (g.handles.has_plain(comm)) return join(g, *comm, what, part, operation);
      g.fault(FaultKind::kMisuse, "its communicator is gone: " + operation->work->text());
      return nullptr;
    };
    return hand_over(gpu, *in, std::move(work));
  }));
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

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  EMULATED_CALL(ncclCommDestroy, CallKind::kReleases);
  return result_of(
      call.make([&](Gpu& gpu) -> cudaError_t { return remove_comm(call, gpu, comm, false); }));
}

// Work of this rank that waits for others is over, without a result.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  EMULATED_CALL(ncclCommAbort, CallKind::kReleases);
  return result_of(
      call.make([&](Gpu& gpu) -> cudaError_t { return remove_comm(call, gpu, comm, true); }));
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  EMULATED_CALL(ncclCommGetAsyncError);
  return result_of(call.make([&](Gpu& gpu) -> cudaError_t {
    if (!gpu.handles.has_plain(comm)) return call.misuse(cudaErrorInvalidValue, "no communicator");
    *asyncError = result_of(gpu.devices[static_cast<size_t>(comm->device)].error);
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

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  EMULATED_CALL(ncclGroupEnd);
  return result_of(call.make([&](Gpu& gpu) -> cudaError_t {
    if (group_depth == 0) return call.misuse(cudaErrorNotPermitted, "no group was started");
    if (--group_depth > 0) return cudaSuccess;
    for (const auto& ranks : std::exchange(group_joins, {})) wait_for_all(gpu, *ranks);
    return cudaSuccess;
  }));
}
