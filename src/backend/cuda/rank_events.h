// RankEvents: events on the ranks' streams of steps, by which it is told whose GPU the others wait
// for. Of ranks that NCCL connects (NcclRanks), each of which marks its own stream. Over peer
// memory such events also order the ranks' work, and are CudaCommunicator's own.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "backend/cuda/cuda_device.h"

namespace deltad {

class RankEvents {
 public:
  explicit RankEvents(int ranks) : members_(static_cast<size_t>(ranks)) {}
  ~RankEvents();
  RankEvents(const RankEvents&) = delete;

  // The rank's thread: marks what is ordered on its stream of steps so far. All ranks do so at the
  // same places.
  Status record(int rank, CudaDevice& device);

  // Asked by `mine`, whose stream does not get on: the rank that has passed fewer marks than
  // others; kNobody if all of them stand at the same one; `mine` if all marks are passed.
  static constexpr int kNobody = -1;
  int slowest(int mine) const;

 private:
  // Used in turn: enough for a step, so that the first that is missing says where a GPU stands.
  static constexpr size_t kEvents = 1024;
  struct Member {
    std::array<std::atomic<cudaEvent_t>, kEvents> events{};
    std::atomic<uint64_t> recorded{0};
  };
  bool passed(const Member& member, uint64_t turn) const;

  std::vector<Member> members_;  // by rank
};

}  // namespace deltad
