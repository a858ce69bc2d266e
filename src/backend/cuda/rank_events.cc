#include "backend/cuda/rank_events.h"

#include <algorithm>

namespace deltad {

RankEvents::~RankEvents() {
  for (Member& member : members_)
    for (const auto& event : member.events)
      if (event.load() != nullptr) cudaEventDestroy(event.load());
}

Status RankEvents::record(int rank, CudaDevice& device) {
  Member& mine = members_[static_cast<size_t>(rank)];
  const uint64_t turn = mine.recorded.load();
  cudaEvent_t event = mine.events[turn % kEvents].load();
  if (event == nullptr) {
    RETURN_IF_ERROR(CUDA_STATUS(device, cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                                "making an event of a rank"));
    mine.events[turn % kEvents].store(event);
  }
  RETURN_IF_ERROR(CUDA_STATUS(device, cudaEventRecord(event, device.compute()),
                              "marking what a rank has done"));
  mine.recorded.store(turn + 1);
  return {};
}

// A rank whose thread has not come to the mark has not passed it either.
bool RankEvents::passed(const Member& member, uint64_t turn) const {
  return member.recorded.load() > turn &&
         cudaEventQuery(member.events[turn % kEvents].load()) != cudaErrorNotReady;
}

int RankEvents::slowest(int mine) const {
  const uint64_t end = members_[static_cast<size_t>(mine)].recorded.load();
  // Not the oldest one: who is ahead by one may use its event again.
  for (uint64_t turn = end - std::min<uint64_t>(end, kEvents - 2); turn < end; ++turn) {
    int first = kNobody, behind = 0;
    for (size_t r = 0; r < members_.size(); ++r) {
      if (passed(members_[r], turn)) continue;
      if (first == kNobody) first = static_cast<int>(r);
      ++behind;
    }
    if (behind > 0) return behind < static_cast<int>(members_.size()) ? first : kNobody;
  }
  return mine;
}

}  // namespace deltad
