// A sum: each rank records an event after its part and arrives; when all have, its stream waits for
// the others' events, and a kernel adds the parts in the order of the ranks, out of all GPUs'
// memory. A part is read until its rank's next event, so the next one lies elsewhere.
//
// Small sums (generated rows) are added whole by every rank. Of large ones (prompts) each rank adds
// some rows, where they lie, and fetches the others': 2 instead of N times the part goes over the
// links. The bits are the same either way.
#include "backend/cuda/cuda_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "backend/rank_meeting.h"
#include "base/check.h"
#include "kernels/cuda/sum_parts.h"

namespace deltad {
namespace {

// Bytes of a part from which rows are divided. Not measured: where reading seven parts over NVLink
// takes longer than meeting once more.
constexpr int64_t kLarge = 256 << 10;

// Events of a rank, used in turn: enough for a step's sums, so that the first that is missing says
// where a GPU stands.
constexpr size_t kEvents = 1024;

// What the ranks know of each other. A rank records events[rank][n % kEvents] before its n-th
// arrival, and the others use it after theirs.
struct Ranks {
  Ranks(int ranks, Duration bound)
      : meeting(ranks, bound),
        events(static_cast<size_t>(ranks), std::vector<cudaEvent_t>(kEvents)) {}
  RankMeeting meeting;
  std::vector<std::vector<cudaEvent_t>> events;  // by rank
};

class CudaCommunicator final : public Communicator {
 public:
  CudaCommunicator(std::shared_ptr<Ranks> ranks, int rank, CudaOps& ops)
      : ranks_(std::move(ranks)), rank_(rank), ops_(ops), device_(ops.device()) {}
  ~CudaCommunicator() override {
    for (cudaEvent_t event : ranks_->events[static_cast<size_t>(rank_)])
      if (event != nullptr) cudaEventDestroy(event);
  }

  int rank() const override { return rank_; }
  int size() const override { return ranks_->meeting.size(); }
  Status all_reduce(TensorView out, TensorView part, Epilogue epilogue) override;
  Status settle() override;
  void fail(const Status& why) override { ranks_->meeting.fail(rank_, why); }
  Status status() const override { return ranks_->meeting.status(); }
  std::string description() const override { return "sums over peer memory"; }

 private:
  cudaEvent_t& event(int rank, uint64_t turn) const {
    return ranks_->events[static_cast<size_t>(rank)][turn % kEvents];
  }
  // What is ordered from here on comes after what every rank ordered before it called this.
  Status order_after_all(const TensorView* part);
  Status sum(TensorView out, int first_part, int parts, int64_t first_row, int64_t end_row,
             Epilogue epilogue);
  int64_t first_row(int rank, int64_t rows) const { return rows * rank / size(); }
  int slowest() const;

  const std::shared_ptr<Ranks> ranks_;
  const int rank_;
  CudaOps& ops_;
  CudaDevice& device_;
  uint64_t turn_ = 0;  // arrivals
};

Status CudaCommunicator::order_after_all(const TensorView* part) {
  const uint64_t turn = turn_++;
  cudaEvent_t& mine = event(rank_, turn);
  if (mine == nullptr)
    RETURN_IF_ERROR(CUDA_STATUS(device_, cudaEventCreateWithFlags(&mine, cudaEventDisableTiming),
                                "making an event of a rank"));
  RETURN_IF_ERROR(CUDA_STATUS(device_, cudaEventRecord(mine, device_.compute()),
                              "marking what a rank has done"));
  RETURN_IF_ERROR(part != nullptr ? ranks_->meeting.enter(rank_, *part)
                                  : ranks_->meeting.meet(rank_));
  for (int other = 0; other < size(); ++other) {
    if (other == rank_) continue;
    RETURN_IF_ERROR(CUDA_STATUS(device_,
                                cudaStreamWaitEvent(device_.compute(), event(other, turn), 0),
                                fmt::format("waiting for rank {}", other)));
  }
  return {};
}

// Rows [first_row, end_row) of out get those of so many parts.
Status CudaCommunicator::sum(TensorView out, int first_part, int parts, int64_t first_row,
                             int64_t end_row, Epilogue epilogue) {
  if (first_row >= end_row) return {};
  cuda::SumPartsParams p{};
  for (int r = first_part; r < first_part + parts; ++r)
    p.parts[p.count++] = ranks_->meeting.part(rank_, r).row<float>(first_row);
  p.out = out.row<float>(first_row);
  p.part_stride = ranks_->meeting.part(rank_, first_part).row_stride;
  p.out_stride = out.row_stride;
  p.rows = static_cast<int32_t>(end_row - first_row);
  p.columns = static_cast<int32_t>((out.shape[1] + 3) / 4 * 4);  // the padding is zeros
  p.add = epilogue == Epilogue::kAddResidual ? 1 : 0;
  return ops_.sum_parts(p);
}

Status CudaCommunicator::all_reduce(TensorView out, TensorView part, Epilogue epilogue) {
  CHECK(out.dtype == DType::kF32 && part.dtype == DType::kF32 && out.shape == part.shape &&
            epilogue != Epilogue::kSiluGate,
        "all_reduce: fp32 of one shape, stored or added");
  RETURN_IF_ERROR(ops_.flush());
  RETURN_IF_ERROR(order_after_all(&part));
  const int64_t rows = out.rows();
  if (rows * part.row_stride * int64_t{sizeof(float)} < kLarge || size() == 2)
    return sum(out, 0, size(), 0, rows, epilogue);
  RETURN_IF_ERROR(
      sum(part, 0, size(), first_row(rank_, rows), first_row(rank_ + 1, rows), Epilogue::kStore));
  RETURN_IF_ERROR(order_after_all(nullptr));
  for (int r = 0; r < size(); ++r)
    RETURN_IF_ERROR(sum(out, r, 1, first_row(r, rows), first_row(r + 1, rows), epilogue));
  return {};
}

// A GPU that hangs holds up all the others, and who waits for it without end would never tell.
Status CudaCommunicator::settle() {
  RETURN_IF_ERROR(status());
  RETURN_IF_ERROR(ops_.flush());
  const TimePoint deadline = Clock::real().now() + ranks_->meeting.bound();
  for (;;) {
    const cudaError_t state = cudaStreamQuery(device_.compute());
    if (state != cudaErrorNotReady)
      return device_.check(state, "cudaStreamQuery", "running a step");
    RETURN_IF_ERROR(status());
    if (Clock::real().now() > deadline) {
      ranks_->meeting.fail(slowest(),
                           unavailable(fmt::format("its GPU has kept the others waiting for {:g} s",
                                                   seconds(ranks_->meeting.bound()))));
      return status();
    }
    std::this_thread::yield();
  }
}

// The rank that has passed the fewest of the events: the others wait for it.
int CudaCommunicator::slowest() const {
  for (uint64_t turn = turn_ - std::min<uint64_t>(turn_, kEvents - 1); turn < turn_; ++turn)
    for (int r = 0; r < size(); ++r)
      if (cudaEventQuery(event(r, turn)) == cudaErrorNotReady) return r;
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
  const auto size = static_cast<int>(ops.size());
  if (size > cuda::kMaxParts)
    return invalid_argument(
        fmt::format("{} ranks on GPUs: at most {} can add their parts", size, cuda::kMaxParts));
  RETURN_IF_ERROR(enable_peers(ops));
  const auto ranks = std::make_shared<Ranks>(size, bound);
  std::vector<std::unique_ptr<Communicator>> made;
  for (int rank = 0; rank < size; ++rank)
    made.push_back(
        std::make_unique<CudaCommunicator>(ranks, rank, *ops[static_cast<size_t>(rank)]));
  return made;
}

}  // namespace deltad
