#include "backend/cuda/nccl_ranks.h"

#include <fmt/core.h>

#include <utility>

#include "base/backoff.h"

namespace deltad {

Result<std::shared_ptr<NcclRanks>> NcclRanks::make(const NcclLibrary& nccl,
                                                   const std::vector<CudaDevice*>& devices,
                                                   Duration bound, Duration connecting) {
  std::shared_ptr<NcclRanks> made(
      new NcclRanks(nccl, static_cast<int>(devices.size()), bound, connecting));
  RETURN_IF_ERROR(made->connect(devices));
  return made;
}

// From one thread: none of these calls waits for the other ranks.
Status NcclRanks::connect(const std::vector<CudaDevice*>& devices) {
  ncclUniqueId id{};
  RETURN_IF_ERROR(nccl_.check(nccl_.get_unique_id(&id), nullptr, "ncclGetUniqueId",
                              "beginning to connect the ranks"));
  const std::string purpose = "connecting a rank with the others";
  const auto failed = [&](int rank, const Status& why) {
    fail(rank, why);
    return meeting_.status();
  };
  for (int rank = 0; rank < size(); ++rank) {
    Status status = devices[static_cast<size_t>(rank)]->use();
    if (status.ok()) {
      Member& member = members_[static_cast<size_t>(rank)];
      ncclConfig_t config = kNonBlockingNccl;
      MutexLock lock(member.mutex);
      status = nccl_.check(nccl_.comm_init_rank_config(&member.comm, size(), id, rank, &config),
                           nullptr, "ncclCommInitRankConfig", purpose);
    }
    if (!status.ok()) return failed(rank, status);
  }
  for (int rank = 0; rank < size(); ++rank) {
    const Status status = wait(rank, purpose);
    if (!status.ok()) return failed(rank, status);
  }
  return {};
}

NcclRanks::~NcclRanks() {
  if (!meeting_.status().ok()) fail(0, meeting_.status());  // if nobody has done so
  wait_for_aborts();
  const bool finalized = finalize();
  for (int rank = 0; rank < size(); ++rank) {
    Member& member = members_[static_cast<size_t>(rank)];
    MutexLock lock(member.mutex);
    if (member.comm == nullptr) continue;
    if (finalized) {
      nccl_.comm_destroy(member.comm);
    } else {
      nccl_.comm_abort(member.comm);
    }
  }
}

// Whether all have said goodbye to each other, for which each needs the others.
bool NcclRanks::finalize() {
  for (Member& member : members_) {
    MutexLock lock(member.mutex);
    if (member.comm == nullptr) return false;
    const ncclResult_t result = nccl_.comm_finalize(member.comm);
    if (result != ncclSuccess && result != ncclInProgress) return false;
  }
  for (int rank = 0; rank < size(); ++rank)
    if (!wait(rank, "ending the ranks' connection").ok()) return false;
  return true;
}

Status NcclRanks::state(int rank, std::string_view purpose, bool* under_way) {
  Member& member = members_[static_cast<size_t>(rank)];
  MutexLock lock(member.mutex);
  *under_way = false;
  if (member.comm == nullptr) return meeting_.status();
  ncclResult_t state = ncclSuccess;
  RETURN_IF_ERROR(nccl_.check(nccl_.comm_get_async_error(member.comm, &state), member.comm,
                              "ncclCommGetAsyncError", purpose));
  *under_way = state == ncclInProgress;
  return nccl_.check(state, member.comm, "NCCL", purpose);
}

Status NcclRanks::wait(int rank, std::string_view purpose) {
  const Duration patience = bound();
  const TimePoint deadline = Clock::real().now() + patience;
  Backoff backoff;
  for (;;) {
    bool under_way = false;
    RETURN_IF_ERROR(state(rank, purpose, &under_way));
    if (!under_way) return {};
    RETURN_IF_ERROR(meeting_.status());
    if (Clock::real().now() > deadline)
      return unavailable(
          fmt::format("NCCL has not ended after {:g} s, while {}", seconds(patience), purpose));
    backoff.pause();
  }
}

Status NcclRanks::order(int rank, std::string_view call,
                        const std::function<ncclResult_t(ncclComm_t)>& ask) {
  constexpr std::string_view kPurpose = "bringing the parts of a sum together";
  {
    Member& member = members_[static_cast<size_t>(rank)];
    MutexLock lock(member.mutex);
    if (member.comm == nullptr) return meeting_.status();
    RETURN_IF_ERROR(nccl_.check(ask(member.comm), member.comm, call, kPurpose));
  }
  return wait(rank, kPurpose);
}

Status NcclRanks::check(int rank) {
  bool under_way = false;
  return state(rank, "bringing the parts of a sum together", &under_way);
}

// By threads of their own: where a GPU hangs, NCCL may wait for it, and whoever told of the failure
// must not.
void NcclRanks::fail(int rank, const Status& why) {
  meeting_.fail(rank, why);
  MutexLock lock(mutex_);
  if (std::exchange(aborting_, true)) return;
  for (int r = 0; r < size(); ++r) aborts_.emplace_back([this, r] { abort(r); });
}

// Without the member's mutex, for the same reason: the rank's thread asks for its state meanwhile.
void NcclRanks::abort(int rank) {
  Member& member = members_[static_cast<size_t>(rank)];
  ncclComm_t comm = nullptr;
  {
    MutexLock lock(member.mutex);
    comm = std::exchange(member.comm, nullptr);
  }
  if (comm != nullptr) nccl_.comm_abort(comm);
}

void NcclRanks::wait_for_aborts() {
  std::vector<std::thread> begun;
  {
    MutexLock lock(mutex_);
    begun.swap(aborts_);
  }
  for (std::thread& thread : begun) thread.join();
}

}  // namespace deltad
