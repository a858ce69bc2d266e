#include "parallel/rank_threads.h"

#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <set>

namespace deltad {
namespace {

TEST(RankThreads, EveryRankDoesItsPartOfEachRun) {
  for (const int ranks : {1, 2, 3, 8}) {
    std::vector<std::atomic<int>> calls(static_cast<size_t>(ranks));
    std::mutex mutex;
    std::set<std::thread::id> threads;
    RankThreads team(ranks, [&](int rank) {
      ++calls[static_cast<size_t>(rank)];
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    });
    for (int run = 1; run <= 100; ++run) {
      team.run();
      ASSERT_EQ(team.await(TimePoint::max()), -1);
      for (const auto& count : calls) ASSERT_EQ(count.load(), run);
    }
    EXPECT_EQ(threads.size(), static_cast<size_t>(ranks));
    EXPECT_EQ(threads.count(std::this_thread::get_id()), 1u) << "rank 0 is the caller";
  }
}

TEST(RankThreads, NamesWhoIsNotDone) {
  std::promise<void> release;
  const auto released = release.get_future().share();
  RankThreads team(4, [&](int rank) {
    if (rank == 3) released.wait();
  });
  team.run();
  EXPECT_EQ(team.await(Clock::real().now() + std::chrono::milliseconds(20)), 3);
  release.set_value();
  EXPECT_EQ(team.await(TimePoint::max()), -1);
}

// A rank that is asleep is woken, by a run and by the end.
TEST(RankThreads, IdleRanksSleepAndAreWoken) {
  std::atomic<int> calls{0};
  RankThreads team(3, [&](int) { ++calls; });
  for (int run = 0; run < 3; ++run) {
    std::this_thread::sleep_for(2 * kSpin);
    team.run();
    ASSERT_EQ(team.await(TimePoint::max()), -1);
  }
  EXPECT_EQ(calls.load(), 9);
}

}  // namespace
}  // namespace deltad
