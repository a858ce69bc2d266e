// A sum: each rank records an event after its part and arrives; when all have, its stream waits for
// the others' events, and a kernel adds the parts in the order of the ranks, out of all GPUs'
// memory (rank_calls). A part is read until its rank's next event, so the next one lies elsewhere.
// Logits go the same way to rank 0, which copies the others' columns. Nobody waits for it to be
// done with them but the sums of the next step.
//
// A step that is gathered (step_program) meets at its end only. Then the ranks show each other
// their lists: if these have come together before, rank 0 launches the graph of all (rank_graphs),
// after what each rank has ordered so far, and the others' streams wait for it. Else each runs its
// own list, and its sums are as above.
#include "backend/cuda/cuda_communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "backend/cuda/rank_calls.h"
#include "backend/cuda/rank_graphs.h"
#include "backend/rank_meeting.h"
#include "base/backoff.h"
#include "base/check.h"
#include "kernels/cuda/sum_parts.h"

namespace deltad {
namespace {

// Events of a rank, used in turn: enough for a step's sums, so that the first that is missing says
// where a GPU stands.
constexpr size_t kEvents = 1024;

std::vector<CudaDevice*> devices_of(const std::vector<CudaOps*>& ops) {
  std::vector<CudaDevice*> devices;
  for (CudaOps* one : ops) devices.push_back(&one->device());
  return devices;
}

// What the ranks know of each other. A rank records events[rank][n % kEvents] before its n-th
// arrival, and the others use it after theirs. Of the rest each rank fills in its own before it
// arrives; `graphs` and `launched` are rank 0's until it arrives the next time.
struct Ranks {
  Ranks(const std::vector<CudaOps*>& ops, Duration bound)
      : meeting(static_cast<int>(ops.size()), bound),
        events(ops.size(), std::vector<cudaEvent_t>(kEvents)),
        lists(ops.size()),
        numbers(ops.size()),
        graphs(devices_of(ops)) {}
  RankMeeting meeting;
  std::vector<std::vector<cudaEvent_t>> events;  // by rank
  std::vector<RankList> lists;                   // the same
  std::vector<uint64_t> numbers;                 // of the lists
  RankGraphs graphs;
  bool launched = false;  // the graph of these lists
};

class CudaCommunicator final : public Communicator, public StepProgram::Together {
 public:
  CudaCommunicator(std::shared_ptr<Ranks> ranks, int rank, CudaOps& ops)
      : ranks_(std::move(ranks)), rank_(rank), ops_(ops), device_(ops.device()) {
    ops_.work_with(this);
  }
  ~CudaCommunicator() override {
    ops_.work_with(nullptr);
    for (cudaEvent_t event : ranks_->events[static_cast<size_t>(rank_)])
      if (event != nullptr) cudaEventDestroy(event);
    if (begun_ != nullptr) cudaEventDestroy(begun_);
  }

  int rank() const override { return rank_; }
  int size() const override { return ranks_->meeting.size(); }
  Status all_reduce(TensorView out, TensorView part, Epilogue epilogue) override;
  bool collects() const override { return true; }
  Status collect(TensorView out, TensorView part) override {
    return order({out, part, Epilogue::kStore, true});
  }
  Status begin_step() override;
  Status settle() override;
  void fail(const Status& why) override { ranks_->meeting.fail(rank_, why); }
  Status status() const override { return ranks_->meeting.status(); }
  std::string description() const override { return "sums over peer memory"; }

  Status run_list() override;
  size_t device_bytes() const override { return ranks_->graphs.device_bytes(rank_); }

 private:
  cudaEvent_t& event(int rank, uint64_t turn) const {
    return ranks_->events[static_cast<size_t>(rank)][turn % kEvents];
  }
  // Carries the call out, or makes it an entry of the step's list.
  Status order(const RankCall& call);
  Status carry_out(const RankCall& call);
  // This rank's turn: what it has ordered is marked, and all ranks have come. call: null, or what
  // it brings its part to.
  Status arrive(const RankCall* call, uint64_t* turn);
  // What is ordered from here on comes after what every rank ordered before that turn.
  Status wait_for_others(uint64_t turn);
  Status wait_for(int other, uint64_t turn);
  Status run_own_list();
  Status make_event(cudaEvent_t& event);
  // Waits, within the bound, while `state` says that something is not ready.
  template <class State>
  Status wait_while_not_ready(const State& state, const char* call);
  int slowest() const;

  const std::shared_ptr<Ranks> ranks_;
  const int rank_;
  CudaOps& ops_;
  CudaDevice& device_;
  uint64_t turn_ = 0;            // arrivals
  cudaEvent_t begun_ = nullptr;  // before the last step: all that came earlier
  std::vector<RankCall> calls_;  // of the step's list, in order
  bool was_graph_ = false;       // the last step with a list
  uint64_t after_graph_ = 0;     // the turn that marks its end
};

Status CudaCommunicator::make_event(cudaEvent_t& event) {
  if (event != nullptr) return {};
  return CUDA_STATUS(device_, cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                     "making an event of a rank");
}

Status CudaCommunicator::arrive(const RankCall* call, uint64_t* turn) {
  *turn = turn_++;
  cudaEvent_t& mine = event(rank_, *turn);
  RETURN_IF_ERROR(make_event(mine));
  RETURN_IF_ERROR(CUDA_STATUS(device_, cudaEventRecord(mine, device_.compute()),
                              "marking what a rank has done"));
  if (call == nullptr) return ranks_->meeting.meet(rank_);
  return ranks_->meeting.enter(rank_, call->part, !call->collects);
}

Status CudaCommunicator::wait_for_others(uint64_t turn) {
  for (int other = 0; other < size(); ++other)
    if (other != rank_) RETURN_IF_ERROR(wait_for(other, turn));
  return {};
}

Status CudaCommunicator::wait_for(int other, uint64_t turn) {
  return CUDA_STATUS(device_, cudaStreamWaitEvent(device_.compute(), event(other, turn), 0),
                     fmt::format("waiting for rank {}", other));
}

Status CudaCommunicator::all_reduce(TensorView out, TensorView part, Epilogue epilogue) {
  CHECK(out.dtype == DType::kF32 && part.dtype == DType::kF32 && out.shape == part.shape &&
            epilogue != Epilogue::kSiluGate,
        "all_reduce: fp32 of one shape, stored or added");
  return order({out, part, epilogue, false});
}

Status CudaCommunicator::order(const RankCall& call) {
  RETURN_IF_ERROR(ops_.failure());
  StepProgram& program = ops_.program();
  if (!program.gathers()) return carry_out(call);
  calls_.push_back(call);
  const auto number = [](const void* data) { return reinterpret_cast<intptr_t>(data); };
  program.add_meeting(std::array<int64_t, 8>{
      number(call.out.data), call.out.row_stride, number(call.part.data), call.part.row_stride,
      call.part.rows(), call.part.shape[1], static_cast<int64_t>(call.epilogue), call.collects});
  return {};
}

Status CudaCommunicator::carry_out(const RankCall& call) {
  uint64_t turn = 0;
  RETURN_IF_ERROR(arrive(&call, &turn));
  std::vector<TensorView> parts;
  for (int r = 0; r < size(); ++r) parts.push_back(ranks_->meeting.part(rank_, r));
  bool first = true;
  for (const RankTurn& mine : turns_of(call, rank_, parts)) {
    if (!std::exchange(first, false)) RETURN_IF_ERROR(arrive(nullptr, &turn));
    if (mine.waits) RETURN_IF_ERROR(wait_for_others(turn));
    for (const cuda::SumPartsParams& p : mine.launches) RETURN_IF_ERROR(ops_.sum_parts(p));
  }
  return {};
}

Status CudaCommunicator::run_own_list() {
  size_t call = 0;
  for (const StepProgram::Entry& entry : ops_.program().entries())
    RETURN_IF_ERROR(entry.meeting() ? carry_out(calls_[call++]) : ops_.program().launch(entry));
  return {};
}

Status CudaCommunicator::run_list() {
  const auto r = static_cast<size_t>(rank_);
  ranks_->lists[r] = {&ops_.program(), calls_};
  ranks_->numbers[r] = ops_.program().number();
  uint64_t turn = 0;
  RETURN_IF_ERROR(arrive(nullptr, &turn));
  if (rank_ == 0) {
    RETURN_IF_ERROR(wait_for_others(turn));
    const Result<bool> launched = ranks_->graphs.launch(ranks_->numbers, ranks_->lists);
    if (!launched.ok()) {
      ranks_->meeting.fail(ranks_->graphs.failed_rank(), launched.status());
      return status();
    }
    ranks_->launched = *launched;
  }
  RETURN_IF_ERROR(arrive(nullptr, &turn));
  was_graph_ = ranks_->launched;
  Status status;
  if (!was_graph_) {
    status = run_own_list();
  } else {
    ops_.program().count_replay();
    after_graph_ = turn;
    if (rank_ != 0) status = wait_for(0, turn);
  }
  calls_.clear();
  return status;
}

// The step before may run by itself, but what came before that has ended: nothing that the host
// waits for without a bound, to fill its pinned memory again, is then under way. Of graphs there is
// one at a time, so that its marks say where it is.
Status CudaCommunicator::begin_step() {
  RETURN_IF_ERROR(status());
  RETURN_IF_ERROR(device_.use());
  if (was_graph_) RETURN_IF_ERROR(settle());
  was_graph_ = false;
  if (begun_ != nullptr)
    RETURN_IF_ERROR(wait_while_not_ready([&] { return cudaEventQuery(begun_); }, "cudaEventQuery"));
  RETURN_IF_ERROR(make_event(begun_));
  return CUDA_STATUS(device_, cudaEventRecord(begun_, device_.compute()),
                     "marking what a rank has done");
}

Status CudaCommunicator::settle() {
  RETURN_IF_ERROR(status());
  RETURN_IF_ERROR(ops_.end_list());
  return wait_while_not_ready([&] { return cudaStreamQuery(device_.compute()); },
                              "cudaStreamQuery");
}

// A GPU that hangs holds up all the others, and who waits for it without end would never tell.
template <class State>
Status CudaCommunicator::wait_while_not_ready(const State& state, const char* call) {
  const TimePoint deadline = Clock::real().now() + ranks_->meeting.bound();
  Backoff backoff;
  for (;;) {
    const cudaError_t now = state();
    if (now != cudaErrorNotReady) return device_.check(now, call, "running a step");
    RETURN_IF_ERROR(status());
    if (Clock::real().now() > deadline) {
      ranks_->meeting.fail(slowest(),
                           unavailable(fmt::format("its GPU has kept the others waiting for {:g} s",
                                                   seconds(ranks_->meeting.bound()))));
      return status();
    }
    backoff.pause();
  }
}

// The rank that has passed the fewest of the events: the others wait for it.
int CudaCommunicator::slowest() const {
  for (uint64_t turn = turn_ - std::min<uint64_t>(turn_, kEvents - 1); turn < turn_; ++turn) {
    if (was_graph_ && turn == after_graph_)
      if (const int rank = ranks_->graphs.slowest(); rank >= 0) return rank;
    for (int r = 0; r < size(); ++r)
      if (cudaEventQuery(event(r, turn)) == cudaErrorNotReady) return r;
  }
  return rank_;  // all sums are done: it is at work on its own
}

// Each GPU may read what the others have.
Status enable_peers(const std::vector<CudaOps*>& ops) {
  for (CudaOps* mine : ops) {
    RETURN_IF_ERROR(mine->device().use());
    for (CudaOps* other : ops)
      if (other != mine) RETURN_IF_ERROR(mine->device().reach(other->device()));
  }
  return {};
}

}  // namespace

Result<std::vector<std::unique_ptr<Communicator>>> make_cuda_communicators(
    const std::vector<CudaOps*>& ops, Duration bound) {
  RETURN_IF_ERROR(enable_peers(ops));
  const auto ranks = std::make_shared<Ranks>(ops, bound);
  std::vector<std::unique_ptr<Communicator>> made;
  for (size_t rank = 0; rank < ops.size(); ++rank)
    made.push_back(std::make_unique<CudaCommunicator>(ranks, static_cast<int>(rank), *ops[rank]));
  return made;
}

}  // namespace deltad
