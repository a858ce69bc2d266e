// A call: each rank says where its part is and arrives; when all have, each adds the parts for
// itself, all in the same order. It is done with them when it arrives the next time.
#include "parallel/thread_communicator.h"

#include <algorithm>
#include <array>
#include <utility>

#include "backend/rank_meeting.h"
#include "base/check.h"

namespace deltad {
namespace {

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<RankMeeting> meeting, int rank)
      : meeting_(std::move(meeting)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return meeting_->size(); }

  Status all_reduce(TensorView out, TensorView part, Epilogue epilogue) override {
    CHECK(out.dtype == DType::kF32 && part.dtype == DType::kF32 && out.shape == part.shape &&
              epilogue != Epilogue::kSiluGate,
          "all_reduce: fp32 of one shape, stored or added");
    RETURN_IF_ERROR(meeting_->enter(rank_, part));
    for (int64_t r = 0; r < out.rows(); ++r)
      for (int64_t c = 0; c < out.shape[1]; c += kChunk)
        reduce(out.row<float>(r) + c, r, c, std::min(kChunk, out.shape[1] - c), epilogue);
    return {};
  }
  Status settle() override { return status(); }

  void fail(const Status& why) override { meeting_->fail(rank_, why); }
  Status status() const override { return meeting_->status(); }

 private:
  static constexpr int64_t kChunk = 1024;

  // Columns [c, c + n) of row r.
  void reduce(float* out, int64_t r, int64_t c, int64_t n, Epilogue epilogue) {
    std::copy_n(meeting_->part(rank_, 0).row<float>(r) + c, n, sum_.begin());
    for (int other = 1; other < size(); ++other) {
      const float* from = meeting_->part(rank_, other).row<float>(r) + c;
      for (int64_t i = 0; i < n; ++i) sum_[static_cast<size_t>(i)] += from[i];
    }
    if (epilogue == Epilogue::kStore) {
      std::copy_n(sum_.begin(), n, out);
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] += sum_[static_cast<size_t>(i)];
    }
  }

  const std::shared_ptr<RankMeeting> meeting_;
  const int rank_;
  std::array<float, kChunk> sum_{};
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int ranks, Duration bound) {
  const auto meeting = std::make_shared<RankMeeting>(ranks, bound);
  std::vector<std::unique_ptr<Communicator>> made;
  for (int rank = 0; rank < ranks; ++rank)
    made.push_back(std::make_unique<ThreadCommunicator>(meeting, rank));
  return made;
}

}  // namespace deltad
