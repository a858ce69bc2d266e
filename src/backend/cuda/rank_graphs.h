// RankGraphs: a step of all ranks as one CUDA graph, of their lists of launches (step_program) and
// of what these need of each other, so that neither the host nor a kernel waits for a rank. Shared
// by the ranks' communicators; called by rank 0's thread while the others' wait for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "backend/cuda/rank_calls.h"
#include "backend/cuda/step_program.h"

namespace deltad {

// A rank's step. calls: one for each of the list's meetings, in order.
struct RankList {
  StepProgram* program = nullptr;
  std::span<const RankCall> calls = {};
};

class RankGraphs {
 public:
  explicit RankGraphs(std::vector<CudaDevice*> devices);
  ~RankGraphs();
  RankGraphs(const RankGraphs&) = delete;

  // Launches the graph of these lists on rank 0's stream of steps, to which it is all ranks' work.
  // False if this is the first time that they come together, or no graph of them can be made: then
  // each rank runs its own. Lists with the same numbers are the same.
  Result<bool> launch(const std::vector<uint64_t>& numbers, std::span<const RankList> lists);
  // After an error: the rank whose GPU's call failed.
  int failed_rank() const { return failed_rank_; }
  // The rank that has got least far in the graph that was launched last; −1: it has ended. Any
  // rank's thread.
  int slowest() const;
  // What the graphs take of a rank's device, as far as that is known. Any rank's thread.
  size_t device_bytes(int rank) const { return bytes_[static_cast<size_t>(rank)]; }

 private:
  struct Known {
    cudaGraphExec_t graph = nullptr;
    size_t marks = 0;           // of each rank
    std::vector<size_t> nodes;  // by rank
    uint64_t used = 0;
    bool refused = false;  // no graph of it can be made
  };
  // All that a capture walks through.
  struct Walk;

  int ranks() const { return static_cast<int>(devices_.size()); }
  CudaDevice& device(int rank) const { return *devices_[static_cast<size_t>(rank)]; }
  cudaEvent_t& mark(int rank, size_t n) { return marks_[static_cast<size_t>(rank)][n]; }
  // What comes next is done for this rank.
  Status turn_to(int rank);
  // Keeps who was worked for when something failed first.
  Status check(const Status& status);
  Status make_events(std::span<const RankList> lists);
  Status make_event(int rank, cudaEvent_t& event);
  Status make(Known& known, std::span<const RankList> lists);
  // After make() has failed: false, or why the ranks cannot go on.
  Result<bool> refuse(Known& known, const Status& why);
  Status capture(Known& known, std::span<const RankList> lists);
  Status fork();
  Status join();
  Status walk(Walk& walk);
  Status walk_to_meeting(Walk& walk, int rank);
  Status meet(Walk& walk);
  Status mark_all(Walk& walk);
  void forget(std::map<std::vector<uint64_t>, Known>::iterator at);

  const std::vector<CudaDevice*> devices_;       // by rank
  std::vector<cudaEvent_t> joins_;               // of captures; by rank
  std::vector<std::vector<cudaEvent_t>> marks_;  // recorded by graphs; by rank
  size_t last_marks_ = 0;                        // of the graph that was launched last
  std::map<std::vector<uint64_t>, Known> known_;
  std::vector<std::atomic<size_t>> bytes_;  // by rank
  uint64_t steps_ = 0;
  int refusals_ = 0;
  int at_work_ = 0, failed_rank_ = -1;
};

}  // namespace deltad
