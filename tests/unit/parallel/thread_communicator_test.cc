#include "parallel/thread_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <thread>

namespace deltad {
namespace {

using ::testing::HasSubstr;

constexpr Duration kLong = std::chrono::seconds(600);

// Calls work on one thread a rank.
void on_ranks(const std::vector<std::unique_ptr<Communicator>>& ranks,
              const std::function<void(Communicator&)>& work) {
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) threads.emplace_back([&] { work(*rank); });
  for (std::thread& thread : threads) thread.join();
}

TensorView view(std::vector<float>& values, int64_t rows, int64_t columns, int64_t stride) {
  return matrix_view(values.data(), DType::kF32, rows, columns, stride);
}

// Values of very different sizes: another order of adding gives other bits.
std::vector<float> values_of(int rank, size_t n) {
  std::mt19937 random(static_cast<uint32_t>(rank) + 1);
  std::vector<float> out(n);
  for (float& v : out)
    v = std::ldexp(static_cast<float>(random() % 4096) - 2048,
                   static_cast<int>(random() % 40) - 20);
  return out;
}

TEST(ThreadCommunicator, AllReduceAddsInTheOrderOfTheRanks) {
  for (const int n : {1, 2, 3, 4, 8}) {
    const auto ranks = make_thread_communicators(n, kLong);
    for (const auto& [rows, columns] :
         {std::pair{1, 1}, std::pair{1, 64}, std::pair{3, 1000}, std::pair{5, 2500}}) {
      for (const Epilogue epilogue : {Epilogue::kStore, Epilogue::kAddResidual}) {
        SCOPED_TRACE(::testing::Message() << n << " ranks, " << rows << "x" << columns);
        const int64_t m = rows, n_columns = columns, stride = columns + 7;
        const auto size = static_cast<size_t>(rows * stride);
        std::vector<std::vector<float>> parts, outs;
        for (int r = 0; r < n; ++r) parts.push_back(values_of(r, size));
        outs.assign(static_cast<size_t>(n), values_of(99, size));
        std::vector<float> expected = outs[0];
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < columns; ++c) {
            const auto i = static_cast<size_t>(r * stride + c);
            float sum = parts[0][i];
            for (size_t k = 1; k < parts.size(); ++k) sum += parts[k][i];
            expected[i] = epilogue == Epilogue::kStore ? sum : expected[i] + sum;
          }
        on_ranks(ranks, [&](Communicator& rank) {
          const auto k = static_cast<size_t>(rank.rank());
          EXPECT_TRUE(rank.all_reduce(view(outs[k], m, n_columns, stride),
                                      view(parts[k], m, n_columns, stride), epilogue)
                          .ok());
        });
        for (const auto& out : outs) {
          EXPECT_EQ(out, expected);
        }  // bit for bit, also between rows
      }
    }
    EXPECT_TRUE(ranks[0]->status().ok());
  }
}

// Ranks may not get ahead of each other: the next call but one overwrites what this one reads.
TEST(ThreadCommunicator, CallsFollowEachOther) {
  constexpr int kRanks = 4, kCalls = 300;
  const auto ranks = make_thread_communicators(kRanks, kLong);
  std::vector<float> parts[kRanks][2];  // read by others until their owner's next call
  on_ranks(ranks, [&](Communicator& rank) {
    std::vector<float> out(64);
    for (int call = 0; call < kCalls; ++call) {
      std::vector<float>& part = parts[rank.rank()][call % 2];
      part.assign(64, static_cast<float>(call * 10 + rank.rank()));
      ASSERT_TRUE(
          rank.all_reduce(view(out, 1, 64, 64), view(part, 1, 64, 64), Epilogue::kStore).ok());
      ASSERT_EQ(out[17], static_cast<float>(call * 10 * kRanks + 6)) << "call " << call;
    }
  });
}

TEST(ThreadCommunicator, AFailedRankEndsTheCallsOfAll) {
  const auto ranks = make_thread_communicators(4, kLong);
  on_ranks(ranks, [&](Communicator& rank) {
    if (rank.rank() == 2) return rank.fail(internal_error("its memory is broken"));
    std::vector<float> part(8), out(8);
    const Status status =
        rank.all_reduce(view(out, 1, 8, 8), view(part, 1, 8, 8), Epilogue::kStore);
    EXPECT_EQ(status.message(), "rank 2 of 4: its memory is broken");
  });
  // For good, and the first failure stays the reason.
  ranks[1]->fail(internal_error("another one"));
  EXPECT_EQ(ranks[3]->status().message(), "rank 2 of 4: its memory is broken");
  EXPECT_EQ(ranks[2]->settle().message(), "rank 2 of 4: its memory is broken");
}

TEST(ThreadCommunicator, ARankThatStaysAwayIsNamed) {
  const auto ranks = make_thread_communicators(3, std::chrono::milliseconds(50));
  on_ranks(ranks, [&](Communicator& rank) {
    if (rank.rank() == 1) return;
    std::vector<float> part(8), out(8);
    const Status status =
        rank.all_reduce(view(out, 1, 8, 8), view(part, 1, 8, 8), Epilogue::kStore);
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_EQ(status.message(), "rank 1 of 3: the others have waited for it for 0.05 s");
  });
}

TEST(ThreadCommunicator, CallsThatDoNotFitAreAFailure) {
  const auto ranks = make_thread_communicators(2, kLong);
  on_ranks(ranks, [&](Communicator& rank) {
    std::vector<float> part(16), out(16);
    const int64_t n = rank.rank() == 0 ? 8 : 16;
    const Status status =
        rank.all_reduce(view(out, 1, n, n), view(part, 1, n, n), Epilogue::kStore);
    EXPECT_THAT(status.message(), HasSubstr("does not fit"));
  });
}

}  // namespace
}  // namespace deltad
