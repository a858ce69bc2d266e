// NcclRanks: NCCL's communicators of the ranks of one process, from their connection to their end,
// and what else the ranks share. A rank's calls come from its thread; the first failure, told by
// any thread, ends what NCCL does on all GPUs: its kernels would wait for a lost rank for ever.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "backend/cuda/nccl_library.h"
#include "backend/cuda/rank_events.h"
#include "backend/rank_meeting.h"
#include "base/mutex.h"

namespace deltad {

class NcclRanks {
 public:
  // Connects the GPUs, a rank each; the error names the one that did not come. bound: the
  // meeting's; connecting: in its place, until set_connected().
  static Result<std::shared_ptr<NcclRanks>> make(const NcclLibrary& nccl,
                                                 const std::vector<CudaDevice*>& devices,
                                                 Duration bound, Duration connecting);
  ~NcclRanks();
  NcclRanks(const NcclRanks&) = delete;

  const NcclLibrary& nccl() const { return nccl_; }
  RankMeeting& meeting() { return meeting_; }
  RankEvents& events() { return events_; }
  // How long NCCL and the GPUs may take. set_connected: before the ranks' threads.
  Duration bound() const { return connected_ ? meeting_.bound() : connecting_; }
  void set_connected() { connected_ = true; }

  // Lets `ask` give the rank's communicator work, which is on its stream when this returns.
  Status order(int rank, std::string_view call, const std::function<ncclResult_t(ncclComm_t)>& ask);
  // Whether what was ordered has gone wrong since.
  Status check(int rank);

  // The rank cannot go on: the reason of all, for good, unless there is one. Any thread.
  void fail(int rank, const Status& why);
  // After a failure: NCCL has left the GPUs.
  void wait_for_aborts();

 private:
  struct Member {
    Mutex mutex;
    ncclComm_t comm GUARDED_BY(mutex) = nullptr;  // null once it is to be aborted
  };

  NcclRanks(const NcclLibrary& nccl, int ranks, Duration bound, Duration connecting)
      : nccl_(nccl),
        connecting_(connecting),
        meeting_(ranks, bound),
        events_(ranks),
        members_(static_cast<size_t>(ranks)) {}
  int size() const { return meeting_.size(); }
  Status connect(const std::vector<CudaDevice*>& devices);
  // What NCCL says of the last call; `purpose` is what that was for.
  Status state(int rank, std::string_view purpose, bool* under_way);
  Status wait(int rank, std::string_view purpose);
  void abort(int rank);
  bool finalize();

  const NcclLibrary& nccl_;
  const Duration connecting_;
  bool connected_ = false;
  RankMeeting meeting_;
  RankEvents events_;
  std::vector<Member> members_;  // by rank
  Mutex mutex_;
  bool aborting_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> aborts_ GUARDED_BY(mutex_);
};

}  // namespace deltad
