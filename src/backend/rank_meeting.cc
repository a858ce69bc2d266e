#include "backend/rank_meeting.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/worker_team.h"

namespace deltad {

RankMeeting::RankMeeting(int ranks, Duration bound)
    : bound_(bound), wait_(ranks <= WorkerTeam::cores()), members_(static_cast<size_t>(ranks)) {}

Status RankMeeting::enter(int rank, TensorView part, bool alike) {
  if (failed_.load()) return status();  // others may still be reading what this one brought last
  Member& mine = members_[static_cast<size_t>(rank)];
  mine.parts[++mine.entered % 2] = part;
  RETURN_IF_ERROR(meet(rank));
  if (!alike) return {};
  const auto text = [](const TensorView& view) {
    return fmt::format("{} with rows {} apart", view.shape.str(), view.row_stride);
  };
  for (int other = 0; other < size(); ++other) {
    const TensorView theirs = this->part(rank, other);
    if (theirs.shape == part.shape && theirs.row_stride == part.row_stride) continue;
    fail(other,
         internal_error(fmt::format("its part of a sum, {}, does not fit that of rank {}, {}",
                                    text(theirs), rank, text(part))));
    return status();
  }
  return {};
}

Status RankMeeting::meet(int rank) {
  if (failed_.load()) return status();
  std::atomic<uint64_t>& mine = members_[static_cast<size_t>(rank)].arrived;
  const uint64_t turn = mine.load(std::memory_order_relaxed) + 1;
  mine.store(turn);
  wait_.notify();
  const auto missing = [&] {
    return std::find_if(members_.begin(), members_.end(),
                        [&](const Member& member) { return member.arrived.load() < turn; });
  };
  const auto done = [&] { return failed_.load() || missing() == members_.end(); };
  if (!wait_.await(done, Clock::real().now() + bound_)) {
    const auto first = missing();
    if (first != members_.end())
      fail(static_cast<int>(first - members_.begin()),
           unavailable(fmt::format("the others have waited for it for {:g} s", seconds(bound_))));
  }
  return failed_.load() ? status() : Status();
}

void RankMeeting::fail(int rank, const Status& why) {
  {
    MutexLock lock(mutex_);
    if (!status_.ok()) return;
    status_ = why.in(fmt::format("rank {} of {}", rank, size()));
    failed_.store(true);
  }
  wait_.notify();
}

Status RankMeeting::status() const {
  MutexLock lock(mutex_);
  return status_;
}

}  // namespace deltad
