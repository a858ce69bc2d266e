// The team runs every worker once, orders memory between runs and at barriers, and sleeps when
// idle.
#include "base/worker_team.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <time.h>

#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace deltad {
namespace {

class WorkerTeamTest : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Sizes, WorkerTeamTest, testing::Values(1, 2, 3, 5));

TEST_P(WorkerTeamTest, RunsEachWorkerOnceAndJoins) {
  WorkerTeam team(GetParam());
  ASSERT_EQ(team.size(), GetParam());
  std::vector<int> calls(static_cast<size_t>(team.size()), 0);  // plain: the join orders them
  // Workers that share a core sleep between runs: fewer rounds, or a busy machine takes minutes.
  const int rounds = team.size() <= WorkerTeam::cores() ? 2000 : 100;
  for (int round = 1; round <= rounds; ++round) {
    team.run([&](int worker) { ++calls[static_cast<size_t>(worker)]; });
    for (int count : calls) ASSERT_EQ(count, round);
  }
}

TEST_P(WorkerTeamTest, WorkerZeroIsTheCaller) {
  WorkerTeam team(GetParam());
  std::vector<std::thread::id> ids(static_cast<size_t>(team.size()));
  team.run([&](int worker) { ids[static_cast<size_t>(worker)] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), ids.size());
}

// Each worker reads what its neighbour wrote before the barrier; plain memory, so TSan sees a
// barrier that does not order.
TEST_P(WorkerTeamTest, BarrierOrdersMemory) {
  WorkerTeam team(GetParam());
  const auto size = static_cast<size_t>(team.size());
  std::vector<int64_t> now(size, 0), next(size, 0);
  const int steps = team.size() <= WorkerTeam::cores() ? 300 : 30;
  for (int round = 0; round < 5; ++round) {
    std::iota(now.begin(), now.end(), int64_t{0});
    team.run([&](int worker) {
      const auto me = static_cast<size_t>(worker);
      for (int step = 0; step < steps; ++step) {
        next[me] = now[(me + 1) % size] + 1;
        team.barrier();
        now[me] = next[me];
        team.barrier();
      }
    });
    for (size_t i = 0; i < size; ++i) {
      ASSERT_EQ(now[i], static_cast<int64_t>((i + steps) % size) + steps);
    }
  }
}

// The same in two halves: what a worker writes after it has arrived, the others need not see.
TEST_P(WorkerTeamTest, ArrivesBeforeItAwaits) {
  WorkerTeam team(GetParam());
  const auto size = static_cast<size_t>(team.size());
  std::vector<int64_t> written(size, 0), own(size, 0), seen(size, 0);
  const int rounds = team.size() <= WorkerTeam::cores() ? 300 : 30;
  for (int64_t round = 1; round <= rounds; ++round) {
    team.run([&](int worker) {
      const auto me = static_cast<size_t>(worker);
      written[me] = round;
      const uint32_t arrival = team.arrive();
      ++own[me];
      if (me % 2 == 1) return;  // some never ask
      team.await(arrival);
      seen[me] = written[(me + 1) % size];
      team.await(arrival);
    });
    for (size_t i = 0; i < size; ++i) {
      ASSERT_EQ(own[i], round);
      ASSERT_EQ(seen[i], i % 2 == 1 ? 0 : round);
    }
  }
}

TEST_P(WorkerTeamTest, WakesFromSleep) {
  WorkerTeam team(GetParam());
  std::atomic<int> calls{0};
  for (int round = 0; round < 20; ++round) {
    // Longer than the spin, in steps that sweep the moment when workers go to sleep.
    std::this_thread::sleep_for(std::chrono::microseconds(20 * round));
    team.run([&](int) { calls.fetch_add(1); });
  }
  EXPECT_EQ(calls.load(), 20 * team.size());
}

TEST_P(WorkerTeamTest, EndsWithoutARunAndAfterIdling) {
  { WorkerTeam team(GetParam()); }
  WorkerTeam team(GetParam());
  team.run([](int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

TEST(WorkerTeam, TwoTeamsAndAnotherCaller) {
  WorkerTeam first(2), second(3);
  int64_t sum = 0;
  first.run([&](int worker) {
    if (worker == 0) sum += 1;
  });
  second.run([&](int worker) {
    if (worker == 0) sum += 2;
  });
  std::thread([&] {
    first.run([&](int worker) {
      if (worker == 1) sum += 4;
    });
  }).join();
  EXPECT_EQ(sum, 7);
}

TEST(WorkerTeam, CallerGetsItsCoresBack) {
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const int cores = WorkerTeam::cores();
  {
    WorkerTeam team(2);
    team.run([](int) {});
    EXPECT_EQ(WorkerTeam::cores(), cores);
  }
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(WorkerTeam, PinnedWorkersHaveOneCoreEach) {
  if (WorkerTeam::cores() < 2) GTEST_SKIP() << "needs two cores";
  WorkerTeam team(2);
  std::array<cpu_set_t, 2> masks;
  team.run([&](int worker) {
    (void)sched_getaffinity(0, sizeof(cpu_set_t), &masks[static_cast<size_t>(worker)]);
  });
  for (const cpu_set_t& mask : masks) EXPECT_EQ(CPU_COUNT(&mask), 1);
  EXPECT_FALSE(CPU_EQUAL(&masks[0], &masks[1]));
}

// The threads' processor time, not elapsed time: an idle team may use that of the first spins only.
TEST(WorkerTeam, IdleUsesNoCpu) {
  WorkerTeam team(3);
  team.run([](int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto cpu_seconds = [] {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(cpu_seconds() - before, 0.1);
}

TEST(ShareOf, CoversAllItemsInUnits) {
  for (int64_t n : {0, 1, 15, 16, 17, 100, 513}) {
    for (int size : {1, 2, 3, 7}) {
      int64_t at = 0;
      for (int worker = 0; worker < size; ++worker) {
        const Share share = share_of(n, 16, worker, size);
        EXPECT_EQ(share.begin, at);
        EXPECT_TRUE(share.end % 16 == 0 || share.end == n);
        at = share.end;
      }
      EXPECT_EQ(at, n);
    }
  }
}

}  // namespace
}  // namespace deltad
