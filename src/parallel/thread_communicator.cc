// A call: each rank says where its memory is and arrives; when all have, each reads what it needs
// of the others and arrives again; when all have, each may use its memory for other things. Every
// rank adds for itself, all in the same order.
#include "parallel/thread_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "base/spin_wait.h"
#include "base/worker_team.h"

namespace deltad {
namespace {

enum class Kind { kAllReduce, kAllGather, kBroadcast };

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce:
      return "all_reduce";
    case Kind::kAllGather:
      return "all_gather";
    case Kind::kBroadcast:
      return "broadcast";
  }
  return "";
}

// What a rank brings to a call.
struct Call {
  Kind kind = Kind::kBroadcast;
  TensorView part;  // of all_reduce and all_gather
  void* data = nullptr;
  size_t bytes = 0;
  int root = 0;

  bool fits(const Call& other) const {
    if (kind != other.kind || bytes != other.bytes || root != other.root) return false;
    if (kind == Kind::kBroadcast) return true;
    return part.rows() == other.part.rows() &&
           (kind == Kind::kAllGather || part.shape[1] == other.part.shape[1]);
  }
  std::string str() const {
    if (kind == Kind::kBroadcast)
      return fmt::format("broadcast of {} bytes from rank {}", bytes, root);
    return fmt::format("{} of {}", name_of(kind), part.shape.str());
  }
};

class Group {
 public:
  Group(int ranks, Duration bound)
      : bound_(bound), wait_(ranks <= WorkerTeam::cores()), members_(static_cast<size_t>(ranks)) {}

  int size() const { return static_cast<int>(members_.size()); }
  const Call& call(int rank) const { return members_[static_cast<size_t>(rank)].call; }

  // Returns when every rank has called it as often as this one, with the call of this rank in
  // place.
  Status enter(int rank, const Call& call) {
    if (failed_.load()) return status();  // others may still be reading this one's last call
    members_[static_cast<size_t>(rank)].call = call;
    RETURN_IF_ERROR(meet(rank));
    for (int other = 0; other < size(); ++other) {
      if (call.fits(this->call(other))) continue;
      fail(other, internal_error(fmt::format("its call, {}, does not fit that of rank {}, {}",
                                             this->call(other).str(), rank, call.str())));
      return status();
    }
    return {};
  }

  // The same without a call: nobody reads the memory of this one any longer.
  Status meet(int rank) {
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

  void fail(int rank, const Status& why) {
    {
      MutexLock lock(mutex_);
      if (!status_.ok()) return;  // what came first is the reason
      status_ = why.in(fmt::format("rank {} of {}", rank, size()));
      failed_.store(true);
    }
    wait_.notify();
  }

  Status status() const {
    MutexLock lock(mutex_);
    return status_;
  }

 private:
  struct alignas(64) Member {
    std::atomic<uint64_t> arrived{0};
    Call call;  // written before arriving, read by the others until the next arrival
  };

  const Duration bound_;
  SpinWait wait_;
  std::vector<Member> members_;
  std::atomic<bool> failed_{false};
  mutable Mutex mutex_;
  Status status_ GUARDED_BY(mutex_);
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  Status all_reduce(TensorView out, TensorView part, Epilogue epilogue) override {
    CHECK(out.dtype == DType::kF32 && part.dtype == DType::kF32 && out.shape == part.shape &&
              epilogue != Epilogue::kSiluGate,
          "all_reduce: fp32 of one shape, stored or added");
    Call call;
    call.kind = Kind::kAllReduce;
    call.part = part;
    RETURN_IF_ERROR(group_->enter(rank_, call));
    for (int64_t r = 0; r < out.rows(); ++r)
      for (int64_t c = 0; c < out.shape[1]; c += kChunk)
        reduce(out.row<float>(r) + c, r, c, std::min(kChunk, out.shape[1] - c), epilogue);
    return group_->meet(rank_);
  }

  Status all_gather(TensorView out, TensorView part) override {
    CHECK(out.dtype == DType::kF32 && part.dtype == DType::kF32 && out.rows() == part.rows(),
          "all_gather: fp32 of as many rows");
    Call call;
    call.kind = Kind::kAllGather;
    call.part = part;
    RETURN_IF_ERROR(group_->enter(rank_, call));
    int64_t at = 0;
    for (int other = 0; other < size(); ++other) {
      const TensorView& from = group_->call(other).part;
      const int64_t columns = from.shape[1];
      CHECK(at + columns <= out.shape[1], "all_gather: out is as wide as all parts");
      for (int64_t r = 0; r < out.rows(); ++r)
        std::copy_n(from.row<float>(r), columns, out.row<float>(r) + at);
      at += columns;
    }
    return group_->meet(rank_);
  }

  Status broadcast(void* data, size_t bytes, int root) override {
    CHECK(root >= 0 && root < size(), "broadcast: no such rank");
    Call call;
    call.data = data;
    call.bytes = bytes;
    call.root = root;
    RETURN_IF_ERROR(group_->enter(rank_, call));
    if (rank_ != root && bytes > 0) std::memcpy(data, group_->call(root).data, bytes);
    return group_->meet(rank_);
  }

  void fail(const Status& why) override { group_->fail(rank_, why); }
  Status status() const override { return group_->status(); }

 private:
  static constexpr int64_t kChunk = 1024;

  // Columns [c, c + n) of row r.
  void reduce(float* out, int64_t r, int64_t c, int64_t n, Epilogue epilogue) {
    std::copy_n(group_->call(0).part.row<float>(r) + c, n, sum_.begin());
    for (int other = 1; other < size(); ++other) {
      const float* from = group_->call(other).part.row<float>(r) + c;
      for (int64_t i = 0; i < n; ++i) sum_[static_cast<size_t>(i)] += from[i];
    }
    if (epilogue == Epilogue::kStore) {
      std::copy_n(sum_.begin(), n, out);
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] += sum_[static_cast<size_t>(i)];
    }
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
  std::array<float, kChunk> sum_{};
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int ranks, Duration bound) {
  const auto group = std::make_shared<Group>(ranks, bound);
  std::vector<std::unique_ptr<Communicator>> made;
  for (int rank = 0; rank < ranks; ++rank)
    made.push_back(std::make_unique<ThreadCommunicator>(group, rank));
  return made;
}

}  // namespace deltad
