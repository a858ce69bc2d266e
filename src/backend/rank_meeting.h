// RankMeeting: where the ranks of tensor parallelism, threads of one process, wait for each other,
// for a bounded time, and learn that one of them has failed. Shared by their communicators.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/spin_wait.h"
#include "base/status.h"
#include "tensor/tensor_view.h"

namespace deltad {

class RankMeeting {
 public:
  // A rank that the others have waited for longer than `bound` counts as failed.
  RankMeeting(int ranks, Duration bound);

  int size() const { return static_cast<int>(members_.size()); }
  Duration bound() const { return bound_; }

  // Returns when every rank has called it, and meet(), as often as this one. part: what the rank
  // brings to a sum. alike: parts that do not fit together are a failure.
  Status enter(int rank, TensorView part, bool alike = true);
  // What `other` brought to the sum that `rank` has entered last.
  TensorView part(int rank, int other) const {
    return members_[static_cast<size_t>(other)]
        .parts[members_[static_cast<size_t>(rank)].entered % 2];
  }
  // The same without a part.
  Status meet(int rank);

  // For good; what came first is the reason. Any thread.
  void fail(int rank, const Status& why);
  Status status() const;

 private:
  struct alignas(64) Member {
    std::atomic<uint64_t> arrived{0};
    uint64_t entered = 0;               // this rank's own
    std::array<TensorView, 2> parts{};  // of its last two calls: the others may read one of them
                                        // when this rank brings the next
  };
  const Duration bound_;
  SpinWait wait_;
  std::vector<Member> members_;
  std::atomic<bool> failed_{false};
  mutable Mutex mutex_;
  Status status_ GUARDED_BY(mutex_);
};

}  // namespace deltad
