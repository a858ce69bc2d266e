// A sum: the ranks arrive and compare what they bring; then NCCL gathers the parts in each GPU's
// memory, and a kernel adds them there. Of large parts (prompts), with more than two ranks, each
// rank is sent some rows of all parts, adds those, and the sums are gathered: 2 instead of N times
// the part goes over the links. A row's numbers are added in the same order either way, the same as
// over peer memory.
#include "backend/cuda/nccl_communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <thread>
#include <utility>

#include "backend/cuda/nccl_ranks.h"
#include "backend/cuda/rank_calls.h"
#include "base/backoff.h"
#include "base/check.h"
#include "kernels/cuda/sum_parts.h"

namespace deltad {
namespace {

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclRanks> ranks, int rank, CudaOps& ops)
      : ranks_(std::move(ranks)), rank_(rank), ops_(ops), device_(ops.device()) {
    ops_.has_others(true);
  }
  ~NcclCommunicator() override {
    ranks_->wait_for_aborts();
    ops_.has_others(false);
    if (parts_ == nullptr) return;
    CudaDevice::wait_for_all();
    cudaFree(parts_);
  }

  int rank() const override { return rank_; }
  int size() const override { return ranks_->meeting().size(); }
  Status all_reduce(TensorView out, TensorView part, Epilogue epilogue) override {
    return or_fail(reduce(out, part, epilogue));
  }
  Status settle() override { return or_fail(wait()); }
  void fail(const Status& why) override { ranks_->fail(rank_, why); }
  Status status() const override { return ranks_->meeting().status(); }
  size_t workspace_bytes() const override { return parts_bytes_; }
  std::string description() const override { return "sums by NCCL " + ranks_->nccl().version(); }
  // Uses what sums use once, on the rank's thread, as all ranks do.
  Status open_ways() { return or_fail(try_ways()); }

 private:
  // Who does not go on must not be waited for by a kernel of NCCL's.
  Status or_fail(const Status& status) {
    if (status.ok()) return status;
    ranks_->fail(rank_, status);
    return ranks_->meeting().status();
  }
  Status reduce(TensorView out, TensorView part, Epilogue epilogue);
  Status exchange(TensorView out, TensorView part, Epilogue epilogue);
  Status make_room(int64_t elements);
  Status try_ways();
  Status gather(const float* mine, int64_t elements);
  Status sum(TensorView out, int64_t rows, int64_t part_stride,
             const std::vector<const float*>& parts, Epilogue epilogue);
  Status wait();

  const std::shared_ptr<NcclRanks> ranks_;
  const int rank_;
  CudaOps& ops_;
  CudaDevice& device_;
  // What NCCL fills. Of cudaMalloc, as the parts are: GPUs that do reach each other's memory write
  // into it, and what streams take (cudaMallocAsync) is not there for others.
  float* parts_ = nullptr;  // [ranks, rows, row_stride]
  size_t parts_bytes_ = 0;
};

// Before the ranks meet: taking memory may wait for all that a GPU has to do, and so must not come
// between a gathering of some ranks and that of others. Grown by more than is asked for, as batches
// differ.
Status NcclCommunicator::make_room(int64_t elements) {
  const size_t bytes = static_cast<size_t>(elements) * sizeof(float);
  if (bytes <= parts_bytes_) return {};
  if (parts_ != nullptr) {
    RETURN_IF_ERROR(wait());
    cudaFree(std::exchange(parts_, nullptr));
  }
  parts_bytes_ = 0;
  const size_t taken = bytes + bytes / 2;
  void* memory = nullptr;
  RETURN_IF_ERROR(device_.allocate(&memory, taken, "the parts of sums"));
  parts_ = static_cast<float*>(memory);
  parts_bytes_ = taken;
  return {};
}

Status NcclCommunicator::reduce(TensorView out, TensorView part, Epilogue epilogue) {
  CHECK(out.dtype == DType::kF32 && part.dtype == DType::kF32 && out.shape == part.shape &&
            epilogue != Epilogue::kSiluGate,
        "all_reduce: fp32 of one shape, stored or added");
  RETURN_IF_ERROR(status());
  RETURN_IF_ERROR(ops_.flush());
  const int64_t rows = part.rows(), elements = rows * part.row_stride;
  const bool large = elements * int64_t{sizeof(float)} >= kLargePart && size() > 2;
  const int64_t each = (rows + size() - 1) / size();  // rows that a rank adds of a large one
  RETURN_IF_ERROR(make_room(size() * (large ? each * part.row_stride : elements)));
  RETURN_IF_ERROR(ranks_->events().record(rank_, device_));
  RETURN_IF_ERROR(ranks_->meeting().enter(rank_, part));
  if (large) {
    RETURN_IF_ERROR(exchange(out, part, epilogue));
  } else {
    RETURN_IF_ERROR(gather(part.row<float>(0), elements));
    std::vector<const float*> parts;
    for (int r = 0; r < size(); ++r) parts.push_back(parts_ + r * elements);
    RETURN_IF_ERROR(sum(out, rows, part.row_stride, parts, epilogue));
  }
  return ranks_->events().record(rank_, device_);
}

Status NcclCommunicator::exchange(TensorView out, TensorView part, Epilogue epilogue) {
  const int64_t rows = part.rows(), stride = part.row_stride;
  const int64_t each = (rows + size() - 1) / size();
  const auto first = [&](int rank) { return std::min(rank * each, rows); };
  const auto elements = [&](int rank) {
    return static_cast<size_t>((first(rank + 1) - first(rank)) * stride);
  };
  const auto place = [&](int rank) { return parts_ + rank * each * stride; };
  const NcclLibrary& nccl = ranks_->nccl();
  // Each other rank gets its rows of this one's part.
  RETURN_IF_ERROR(ranks_->order(rank_, "ncclSend and ncclRecv", [&](ncclComm_t comm) {
    ncclResult_t result = nccl.group_start();
    if (result != ncclSuccess) return result;
    const auto good = [&] { return result == ncclSuccess || result == ncclInProgress; };
    for (int r = 0; r < size() && good(); ++r) {
      if (r == rank_) continue;
      if (elements(r) > 0)
        result = nccl.send(part.row<float>(first(r)), elements(r), ncclFloat32, r, comm,
                           device_.compute());
      if (elements(rank_) > 0 && good())
        result = nccl.receive(place(r), elements(rank_), ncclFloat32, r, comm, device_.compute());
    }
    const ncclResult_t end = nccl.group_end();
    return good() ? end : result;
  }));
  // The sums take the place that is left for this rank's own part.
  std::vector<const float*> parts;
  for (int r = 0; r < size(); ++r)
    parts.push_back(r == rank_ ? part.row<float>(first(r)) : place(r));
  TensorView sums = part;
  sums.data = place(rank_);
  RETURN_IF_ERROR(sum(sums, first(rank_ + 1) - first(rank_), stride, parts, Epilogue::kStore));
  RETURN_IF_ERROR(gather(place(rank_), each * stride));
  return sum(out, rows, stride, {parts_}, epilogue);
}

// All ranks' `mine` in parts_, one behind the other.
Status NcclCommunicator::gather(const float* mine, int64_t elements) {
  return ranks_->order(rank_, "ncclAllGather", [&](ncclComm_t comm) {
    return ranks_->nccl().all_gather(mine, parts_, static_cast<size_t>(elements), ncclFloat32, comm,
                                     device_.compute());
  });
}

// The first rows of out get those of the parts, [rows, part_stride] each.
Status NcclCommunicator::sum(TensorView out, int64_t rows, int64_t part_stride,
                             const std::vector<const float*>& parts, Epilogue epilogue) {
  if (rows == 0) return {};
  RETURN_IF_ERROR(ops_.sum_parts(sum_of_parts(out, rows, parts, part_stride, epilogue)));
  return ops_.flush();  // what NCCL is asked for next comes after it
}

// Asks rather than waits: a GPU that hangs holds up all the others, and nobody would tell.
Status NcclCommunicator::wait() {
  RETURN_IF_ERROR(status());
  RETURN_IF_ERROR(ops_.flush());
  const Duration patience = ranks_->bound();
  const TimePoint deadline = Clock::real().now() + patience;
  Backoff backoff;
  for (;;) {
    const cudaError_t state = cudaStreamQuery(device_.compute());
    if (state != cudaErrorNotReady)
      RETURN_IF_ERROR(device_.check(state, "cudaStreamQuery", "running a step"));
    // Also of a stream that has ended: an exchange that was aborted has brought nothing.
    RETURN_IF_ERROR(status());
    if (state == cudaSuccess) return {};
    RETURN_IF_ERROR(ranks_->check(rank_));
    if (Clock::real().now() > deadline) {
      const double bound = seconds(patience);
      const int slowest = ranks_->events().slowest(rank_);
      if (slowest == RankEvents::kNobody)
        return unavailable(
            fmt::format("no GPU has got through an exchange by NCCL in {:g} s", bound));
      ranks_->fail(slowest, unavailable(fmt::format(
                                "its GPU has kept the others waiting for {:g} s", bound)));
      return status();
    }
    backoff.pause();
  }
}

// NCCL makes the ways between GPUs, and takes their buffers, when they are first used: now, before
// anybody asks what memory is left for variants and KV blocks. The ranks do not meet for it: that
// has the bound of steps.
Status NcclCommunicator::try_ways() {
  constexpr int64_t kColumns = 64;
  RETURN_IF_ERROR(device_.use());
  const int64_t elements = size() * kColumns;
  ASSIGN_OR_RETURN(
      const DeviceMemory memory,
      DeviceMemory::make(device_, device_.compute(), static_cast<size_t>(elements) * sizeof(float),
                         "connecting the ranks"));
  // A row a rank.
  const TensorView part =
      matrix_view(memory.data(), DType::kF32, size(), kColumns, kColumns, DeviceKind::kCuda);
  RETURN_IF_ERROR(make_room(elements));
  RETURN_IF_ERROR(ranks_->events().record(rank_, device_));
  RETURN_IF_ERROR(size() > 2 ? exchange(part, part, Epilogue::kStore)
                             : gather(part.row<float>(0), kColumns));
  RETURN_IF_ERROR(ranks_->events().record(rank_, device_));
  return wait();
}

// Of NCCL's calls it would make such that wait for other GPUs, without end if one hangs.
Status check_environment() {
  const char* blocking = std::getenv("NCCL_COMM_BLOCKING");
  if (blocking == nullptr || std::strtol(blocking, nullptr, 0) != 1) return {};
  return invalid_argument(
      "NCCL_COMM_BLOCKING=1 in the environment lets NCCL's calls wait without end: unset it");
}

}  // namespace

Result<std::vector<std::unique_ptr<Communicator>>> make_nccl_communicators(
    const NcclLibrary& nccl, const std::vector<CudaOps*>& ops, Duration bound,
    Duration least_connecting) {
  RETURN_IF_ERROR(check_environment());
  std::vector<CudaDevice*> devices;
  for (CudaOps* of_rank : ops) devices.push_back(&of_rank->device());
  ASSIGN_OR_RETURN(const std::shared_ptr<NcclRanks> ranks,
                   NcclRanks::make(nccl, devices, bound, std::max(bound, least_connecting)));
  std::vector<std::unique_ptr<NcclCommunicator>> of_ranks;
  for (size_t rank = 0; rank < ops.size(); ++rank)
    of_ranks.push_back(
        std::make_unique<NcclCommunicator>(ranks, static_cast<int>(rank), *ops[rank]));
  std::vector<std::thread> threads;
  for (const auto& of_rank : of_ranks)
    threads.emplace_back([&of_rank] { (void)of_rank->open_ways(); });
  for (std::thread& thread : threads) thread.join();
  RETURN_IF_ERROR(ranks->meeting().status());
  ranks->set_connected();
  return std::vector<std::unique_ptr<Communicator>>(std::make_move_iterator(of_ranks.begin()),
                                                    std::make_move_iterator(of_ranks.end()));
}

}  // namespace deltad
