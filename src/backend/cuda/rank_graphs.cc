// A graph is captured from the ranks' streams, which are those of their launches: they fork off
// rank 0's, and come together there at the end. Where ranks meet, each has a node that marks how
// far it is, and the others' next kernels come after it; being no kernel it also keeps those from
// starting before it.
#include "backend/cuda/rank_graphs.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"

namespace deltad {
namespace {

constexpr char kPurpose[] = "capturing a step of all ranks";

// Lists of which no graph could be made: after as many none is tried any more.
constexpr int kMostRefusals = 4;

}  // namespace

struct RankGraphs::Walk {
  Known& known;
  std::span<const RankList> lists;
  std::vector<size_t> next;  // entry of each rank's list
  size_t call = 0;           // the same one of all ranks
};

RankGraphs::RankGraphs(std::vector<CudaDevice*> devices)
    : devices_(std::move(devices)),
      joins_(devices_.size()),
      marks_(devices_.size()),
      bytes_(devices_.size()) {}

RankGraphs::~RankGraphs() {
  for (auto& [numbers, known] : known_)
    if (known.graph != nullptr) cudaGraphExecDestroy(known.graph);
  for (cudaEvent_t event : joins_)
    if (event != nullptr) cudaEventDestroy(event);
  for (const auto& of_rank : marks_)
    for (cudaEvent_t event : of_rank)
      if (event != nullptr) cudaEventDestroy(event);
}

Result<bool> RankGraphs::launch(const std::vector<uint64_t>& numbers,
                                std::span<const RankList> lists) {
  const auto [at, fresh] = known_.try_emplace(numbers);
  Known& known = at->second;
  known.used = ++steps_;
  if (fresh) {
    if (known_.size() > StepProgram::kMostKnown)
      forget(std::min_element(known_.begin(), known_.end(), [](const auto& a, const auto& b) {
        return a.second.used < b.second.used;
      }));
    return false;
  }
  if (known.refused || (known.graph == nullptr && refusals_ >= kMostRefusals)) return false;
  if (known.graph == nullptr) {
    const Status made = make(known, lists);
    if (!made.ok()) return refuse(known, made);
  }
  last_marks_ = known.marks;
  RETURN_IF_ERROR(check(turn_to(0)));
  RETURN_IF_ERROR(check(CUDA_STATUS(device(0), cudaGraphLaunch(known.graph, device(0).compute()),
                                    "launching a graph of all ranks")));
  return true;
}

Status RankGraphs::make(Known& known, std::span<const RankList> lists) {
  RETURN_IF_ERROR(check(make_events(lists)));
  RETURN_IF_ERROR(check(turn_to(0)));
  return capture(known, lists);
}

// Nothing of the step has been launched, so that it can still go without a graph: unless a GPU has
// failed, or a stream does not leave the capture.
Result<bool> RankGraphs::refuse(Known& known, const Status& why) {
  known.graph = nullptr;
  for (CudaDevice* device : devices_) {
    RETURN_IF_ERROR(device->use());
    auto state = cudaStreamCaptureStatusActive;
    if (!device->health().ok() || cudaStreamIsCapturing(device->compute(), &state) != cudaSuccess ||
        state != cudaStreamCaptureStatusNone)
      return why;
  }
  RETURN_IF_ERROR(device(0).use());
  failed_rank_ = -1;
  known.refused = true;
  if (++refusals_ == 1)
    log_warning("steps of these ranks go on without a graph, and slower: {}", why.message());
  if (refusals_ == kMostRefusals)
    log_warning("no more graphs of all ranks are tried: {} could not be made", refusals_);
  return false;
}

Status RankGraphs::turn_to(int rank) {
  at_work_ = rank;
  return device(rank).use();
}

Status RankGraphs::check(const Status& status) {
  if (!status.ok() && failed_rank_ < 0) failed_rank_ = at_work_;
  return status;
}

int RankGraphs::slowest() const {
  for (size_t n = 0; n < last_marks_; ++n)
    for (int r = 0; r < ranks(); ++r)
      if (cudaEventQuery(marks_[static_cast<size_t>(r)][n]) == cudaErrorNotReady) return r;
  return -1;
}

void RankGraphs::forget(std::map<std::vector<uint64_t>, Known>::iterator at) {
  if (at->second.graph != nullptr) {
    cudaGraphExecDestroy(at->second.graph);
    for (size_t r = 0; r < bytes_.size(); ++r)
      bytes_[r] -= at->second.nodes[r] * StepProgram::kNodeBytes;
  }
  known_.erase(at);
}

Status RankGraphs::make_event(int rank, cudaEvent_t& event) {
  if (event != nullptr) return {};
  RETURN_IF_ERROR(turn_to(rank));
  return CUDA_STATUS(device(rank), cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                     "making an event of a graph");
}

// Before the capture: for each turn of a meeting a mark, and one at the end.
Status RankGraphs::make_events(std::span<const RankList> lists) {
  std::vector<TensorView> parts(lists.size());
  size_t marks = 1;
  for (size_t call = 0; call < lists[0].calls.size(); ++call) {
    for (size_t r = 0; r < lists.size(); ++r) parts[r] = lists[r].calls[call].part;
    marks += turns_of(lists[0].calls[call], 0, parts).size();
  }
  for (int r = 0; r < ranks(); ++r) {
    RETURN_IF_ERROR(make_event(r, joins_[static_cast<size_t>(r)]));
    auto& of_rank = marks_[static_cast<size_t>(r)];
    if (of_rank.size() < marks) of_rank.resize(marks);
    for (cudaEvent_t& event : of_rank) RETURN_IF_ERROR(make_event(r, event));
  }
  return {};
}

Status RankGraphs::capture(Known& known, std::span<const RankList> lists) {
  const cudaStream_t origin = device(0).compute();
  RETURN_IF_ERROR(check(CUDA_STATUS(
      device(0), cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal), kPurpose)));
  known.marks = 0;
  known.nodes.assign(lists.size(), 0);
  Walk steps{known, lists, std::vector<size_t>(lists.size()), 0};
  Status status = check(fork());
  if (status.ok()) status = check(walk(steps));
  // Also after a failure: no stream stays in the capture.
  const Status joined = join();
  if (status.ok()) status = joined;
  cudaGraph_t captured = nullptr;
  const Status ended = CUDA_STATUS(device(0), cudaStreamEndCapture(origin, &captured), kPurpose);
  if (status.ok()) status = ended;
  if (status.ok())
    status = CUDA_STATUS(device(0), cudaGraphInstantiate(&known.graph, captured, 0),
                         "making a graph of a step of all ranks");
  if (captured != nullptr) cudaGraphDestroy(captured);
  RETURN_IF_ERROR(check(status));
  for (size_t r = 0; r < bytes_.size(); ++r) bytes_[r] += known.nodes[r] * StepProgram::kNodeBytes;
  return {};
}

Status RankGraphs::fork() {
  RETURN_IF_ERROR(
      CUDA_STATUS(device(0), cudaEventRecord(joins_[0], device(0).compute()), kPurpose));
  for (int r = 1; r < ranks(); ++r) {
    RETURN_IF_ERROR(turn_to(r));
    RETURN_IF_ERROR(
        CUDA_STATUS(device(r), cudaStreamWaitEvent(device(r).compute(), joins_[0], 0), kPurpose));
  }
  return {};
}

// All of it is tried, whatever fails: each stream that is in the capture. Ends with rank 0.
Status RankGraphs::join() {
  Status first;
  const auto note = [&](const Status& status) {
    if (!check(status).ok() && first.ok()) first = status;
    return status.ok();
  };
  std::vector<cudaEvent_t> joined;
  for (int r = 1; r < ranks(); ++r) {
    const cudaEvent_t join = joins_[static_cast<size_t>(r)];
    const cudaStream_t stream = device(r).compute();
    auto state = cudaStreamCaptureStatusNone;
    if (note(turn_to(r)) &&
        note(CUDA_STATUS(device(r), cudaStreamIsCapturing(stream, &state), kPurpose)) &&
        state != cudaStreamCaptureStatusNone &&
        note(CUDA_STATUS(device(r), cudaEventRecord(join, stream), kPurpose)))
      joined.push_back(join);
  }
  note(turn_to(0));
  for (const cudaEvent_t join : joined)
    note(CUDA_STATUS(device(0), cudaStreamWaitEvent(device(0).compute(), join, 0), kPurpose));
  return first;
}

Status RankGraphs::walk(Walk& walk) {
  for (;;) {
    for (int r = 0; r < ranks(); ++r) RETURN_IF_ERROR(walk_to_meeting(walk, r));
    if (walk.call == walk.lists[0].calls.size()) return mark_all(walk);
    RETURN_IF_ERROR(meet(walk));
  }
}

Status RankGraphs::walk_to_meeting(Walk& walk, int rank) {
  const auto r = static_cast<size_t>(rank);
  RETURN_IF_ERROR(turn_to(rank));
  StepProgram& program = *walk.lists[r].program;
  const auto entries = program.entries();
  for (; walk.next[r] < entries.size() && !entries[walk.next[r]].meeting(); ++walk.next[r]) {
    RETURN_IF_ERROR(program.launch(entries[walk.next[r]]));
    ++walk.known.nodes[r];
  }
  CHECK(walk.lists[r].calls.size() == walk.lists[0].calls.size() &&
            (walk.next[r] == entries.size()) == (walk.call == walk.lists[r].calls.size()),
        "ranks whose lists do not meet");
  ++walk.next[r];
  return {};
}

Status RankGraphs::meet(Walk& walk) {
  std::vector<TensorView> parts;
  for (const RankList& list : walk.lists) parts.push_back(list.calls[walk.call].part);
  std::vector<std::vector<RankTurn>> turns;
  for (int r = 0; r < ranks(); ++r)
    turns.push_back(turns_of(walk.lists[static_cast<size_t>(r)].calls[walk.call], r, parts));
  for (size_t turn = 0; turn < turns[0].size(); ++turn) {
    RETURN_IF_ERROR(mark_all(walk));
    for (int r = 0; r < ranks(); ++r) {
      RETURN_IF_ERROR(turn_to(r));
      RETURN_IF_ERROR(CUDA_STATUS(
          device(r), cudaEventRecord(joins_[static_cast<size_t>(r)], device(r).compute()),
          kPurpose));
    }
    for (int rank = 0; rank < ranks(); ++rank) {
      const auto r = static_cast<size_t>(rank);
      RETURN_IF_ERROR(turn_to(rank));
      for (int other = 0; turns[r][turn].waits && other < ranks(); ++other)
        if (other != rank)
          RETURN_IF_ERROR(CUDA_STATUS(
              device(rank),
              cudaStreamWaitEvent(device(rank).compute(), joins_[static_cast<size_t>(other)], 0),
              kPurpose));
      for (const cuda::SumPartsParams& p : turns[r][turn].launches)
        RETURN_IF_ERROR(
            walk.lists[r].program->launch(cuda::kSumPartsKernel, cuda::sum_parts_launch(p), p));
      walk.known.nodes[r] += turns[r][turn].launches.size();
    }
  }
  ++walk.call;
  return {};
}

Status RankGraphs::mark_all(Walk& walk) {
  const size_t n = walk.known.marks++;
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto r = static_cast<size_t>(rank);
    const cudaStream_t stream = device(rank).compute();
    RETURN_IF_ERROR(turn_to(rank));
    RETURN_IF_ERROR(CUDA_STATUS(
        device(rank), cudaEventRecordWithFlags(mark(rank, n), stream, cudaEventRecordExternal),
        kPurpose));
    ++walk.known.nodes[r];
  }
  return {};
}

}  // namespace deltad
