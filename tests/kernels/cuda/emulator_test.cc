// The emulator itself: small kernels, right and wrong, and what it says of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "kernels/cuda/device.h"
#include "tests/support/cuda_on_cpu/global_memory.h"
#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {
namespace {

using emulator::Access;
using emulator::DeviceBuffer;
using emulator::FaultKind;
using emulator::launch;
using emulator::Options;
using emulator::Order;
using emulator::Report;
using testing::HasSubstr;

constexpr Order kOrders[] = {Order::kFifo, Order::kLifo, Order::kRandom};

struct Arrays {
  const int32_t* in;
  int32_t* out;
  int32_t count;
};

// Each block reverses its part through shared memory.
void reverse(Arrays p) {
  const Shared<int32_t> all = dynamic_shared<int32_t>();
  const auto i = static_cast<int32_t>(threadIdx.x), n = static_cast<int32_t>(blockDim.x);
  const int32_t at = static_cast<int32_t>(blockIdx.x) * n + i;
  if (in_bounds(at < p.count)) store_shared(all + i, load_global(p.in + at));
  __syncthreads();
  const int32_t from = static_cast<int32_t>(blockIdx.x) * n + (n - 1 - i);
  if (in_bounds(from < p.count)) store_global(p.out + at, load_shared(all + (n - 1 - i)));
}

std::vector<int32_t> iota(size_t count) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(Emulator, RunsBlocksWithBarriersInEveryOrder) {
  for (Order order : kOrders) {
    DeviceBuffer<int32_t> in("in", iota(192)), out("out", 192, Access::kWrite);
    const Report report =
        launch(reverse, {{3}, {64}, 256}, {in.data(), out.data(), 192}, {.order = order});
    ASSERT_TRUE(report.ok()) << report.text();
    for (int32_t i = 0; i < 192; ++i) {
      EXPECT_EQ(out[static_cast<size_t>(i)], i / 64 * 64 + 63 - i % 64);
    }
    EXPECT_EQ(report.counters.barriers, 192u);
  }
}

TEST(Emulator, FindsTheMissingBarrierInEveryOrder) {
  DeviceBuffer<int32_t> in("in", iota(64)), out("out", 64, Access::kWrite);
  const Arrays p = {in.data(), out.data(), 64};
  const Report right = launch(reverse, {{1}, {64}, 256}, p);
  ASSERT_EQ(right.sites.size(), 3u);
  for (emulator::SiteId site : right.sites) {
    if (emulator::SiteTable::instance().at(site).kind != emulator::SiteKind::kBarrier) continue;
    for (Order order : kOrders) {
      const Report wrong = launch(reverse, {{1}, {64}, 256}, p, {.order = order, .off = {site}});
      ASSERT_FALSE(wrong.ok());
      EXPECT_THAT(wrong.faults[0].kind,
                  testing::AnyOf(FaultKind::kRace, FaultKind::kUninitialised));
    }
  }
}

TEST(Emulator, SwitchedOffGuardReadsOutOfBounds) {
  DeviceBuffer<int32_t> in("in", iota(60)), out("out", 64, Access::kWrite);
  const Arrays p = {in.data(), out.data(), 60};
  const Report right = launch(reverse, {{1}, {64}, 256}, p);
  ASSERT_TRUE(right.ok()) << right.text();
  int caught = 0;
  for (emulator::SiteId site : right.sites) {
    if (emulator::SiteTable::instance().at(site).kind != emulator::SiteKind::kGuard) continue;
    const Report wrong = launch(reverse, {{1}, {64}, 256}, p, {.off = {site}});
    ASSERT_FALSE(wrong.ok());
    if (wrong.faults[0].kind == FaultKind::kGlobalBounds) {
      EXPECT_THAT(wrong.text(), HasSubstr("thread 60: 4 bytes at byte 240 of in, which has 240"));
      ++caught;
    } else {
      EXPECT_EQ(wrong.faults[0].kind, FaultKind::kUninitialised);
    }
  }
  EXPECT_EQ(caught, 1);
}

// A kernel that does one wrong thing, by number.
struct Wrong {
  int32_t what;
  int32_t* out;
  const int32_t* in;
};

void wrong_kernel(Wrong p) {
  const Shared<int32_t> words = dynamic_shared<int32_t>();
  const auto i = static_cast<int32_t>(threadIdx.x);
  switch (p.what) {
    case 0:  // half of the block at a barrier, half at the exit's
      if (i < 32) {
        __syncthreads();
      } else {
        named_barrier_sync(1, 64);
      }
      break;
    case 1:  // lanes of a warp at two places
      if (i % 2 == 0) {
        __syncwarp();
      } else {
        __shfl_xor_sync(0xffffffffu, i, 1);
      }
      break;
    case 2:
      store_shared(words + 64 + i, 1);
      break;
    case 3:
      load_shared(shared_cast<int2>(words + 1));
      break;
    case 4:
      store_global(const_cast<int32_t*>(p.in) + i, 1);
      break;
    case 5:
      if (i < 16) __shfl_sync(0xffffu, i, 20);
      break;
    case 6:
      if (i == 3) break;
      if (i < 32) __syncwarp();
      break;
    case 7:  // never waits
      if (i > 0) break;
      cp_async_16(words, p.in);
      cp_async_commit();
      load_shared(words);
      break;
    case 8:  // waits for the wrong group
      if (i > 0) break;
      cp_async_16(words, p.in);
      cp_async_commit();
      cp_async_16(words + 4, p.in);
      cp_async_commit();
      cp_async_wait<1>();
      store_global(p.out, load_shared(words));
      load_shared(words + 4);
      break;
    case 9:  // two barriers of one block
      if (i < 32) {
        __syncthreads();
      } else {
        __syncthreads();
      }
      break;
    case 10:  // overwrites what others may still read
      store_shared(words + i, i);
      __syncthreads();
      load_shared(words + (i + 1) % 64);
      store_shared(words + i, 0);
      break;
    default:
      break;
  }
}

TEST(Emulator, SaysWhatIsWrong) {
  const std::pair<FaultKind, const char*> expected[] = {
      {FaultKind::kDeadlock, "32 threads wait in a barrier"},
      {FaultKind::kDivergence, "while lanes of its warp are in"},
      {FaultKind::kSharedBounds, " of 256\n"},
      {FaultKind::kMisaligned, "8 bytes of shared memory at 4"},
      {FaultKind::kGlobalBounds, "a write to in, which is read only"},
      {FaultKind::kBadLane, "shuffles from a lane outside the mask"},
      {FaultKind::kBadLane, "names lanes that have exited"},
      {FaultKind::kInFlight, "where a copy of thread"},
      {FaultKind::kInFlight, "reads shared memory at byte 16, where a copy of thread 0"},
      {FaultKind::kDivergence, "others of the block are at the barrier of emulator_test.cc:"},
      {FaultKind::kRace, "unordered with a"},
  };
  DeviceBuffer<int32_t> in("in", iota(64)), out("out", 64, Access::kWrite);
  for (int32_t what = 0; what < static_cast<int32_t>(std::size(expected)); ++what) {
    for (Order order : {Order::kFifo, Order::kRandom}) {
      const Report report =
          launch(wrong_kernel, {{1}, {64}, 256}, {what, out.data(), in.data()}, {.order = order});
      ASSERT_FALSE(report.ok()) << "case " << what;
      EXPECT_EQ(report.faults[0].kind, expected[what].first) << report.text();
      EXPECT_THAT(report.text(), HasSubstr(expected[what].second)) << "case " << what;
      EXPECT_THAT(report.text(), HasSubstr("emulator_test.cc:"));
    }
  }
}

TEST(Emulator, LeavesOnlyRacesOutWhereNoneAreLookedFor) {
  DeviceBuffer<int32_t> in("in", iota(64)), out("out", 64, Access::kWrite);
  const auto faults_of = [&](int32_t what) {
    const Report report =
        launch(wrong_kernel, {{1}, {64}, 256}, {what, out.data(), in.data()}, {.races = false});
    return report.faults;
  };
  EXPECT_TRUE(faults_of(10).empty());
  ASSERT_FALSE(faults_of(0).empty());
  EXPECT_EQ(faults_of(0)[0].kind, FaultKind::kDeadlock);
  ASSERT_FALSE(faults_of(2).empty());
  EXPECT_EQ(faults_of(2)[0].kind, FaultKind::kSharedBounds);
}

// Block 0 waits for ever, block 1 ends.
void one_block_waits(Arrays) {
  if (blockIdx.x == 0) named_barrier_sync(1, 64);
}

TEST(Emulator, FindsADeadlockAmongBlocksThatEnd) {
  for (uint32_t resident : {1u, 2u}) {
    const Report report =
        launch(one_block_waits, {{2}, {32}, 0}, {}, {.resident_blocks = resident});
    ASSERT_EQ(report.faults.size(), 1u);
    EXPECT_THAT(report.text(), HasSubstr("deadlock at emulator_test.cc:"));
    EXPECT_THAT(report.text(), HasSubstr("block (0, 0, 0), thread 0: 32 threads wait"));
  }
}

struct Lanes {
  int32_t* out;
};

void lanes_kernel(Lanes p) {
  const auto lane = static_cast<int32_t>(threadIdx.x);
  constexpr uint32_t kAll = 0xffffffffu;
  const int32_t results[] = {
      __shfl_sync(kAll, lane, 5),         __shfl_sync(kAll, lane, 3, 8),
      __shfl_xor_sync(kAll, lane, 9),     __shfl_down_sync(kAll, lane, 3u),
      __shfl_up_sync(kAll, lane, 2u, 16), static_cast<int32_t>(__ballot_sync(kAll, lane % 3 == 0)),
      __any_sync(kAll, lane == 7),        __all_sync(kAll, lane < 31),
  };
  for (int i = 0; i < 8; ++i) store_global(p.out + 8 * lane + i, results[i]);
}

TEST(Emulator, ShufflesAndVotes) {
  DeviceBuffer<int32_t> out("out", 256, Access::kWrite);
  for (Order order : kOrders) {
    const Report report = launch(lanes_kernel, {{1}, {32}, 0}, {out.data()}, {.order = order});
    ASSERT_TRUE(report.ok()) << report.text();
    uint32_t thirds = 0;
    for (int lane = 0; lane < 32; lane += 3) thirds |= 1u << lane;
    for (int32_t lane = 0; lane < 32; ++lane) {
      const int32_t* got = out.data() + 8 * lane;
      EXPECT_EQ(got[0], 5);
      EXPECT_EQ(got[1], lane / 8 * 8 + 3);
      EXPECT_EQ(got[2], lane ^ 9);
      EXPECT_EQ(got[3], lane + 3 < 32 ? lane + 3 : lane);
      EXPECT_EQ(got[4], lane % 16 >= 2 ? lane - 2 : lane);
      EXPECT_EQ(static_cast<uint32_t>(got[5]), thirds);
      EXPECT_EQ(got[6], 1);
      EXPECT_EQ(got[7], 0);
    }
  }
}

// Warp 0 makes, warp 1 uses: it counts at a named barrier that the other waits at.
void hand_over(Arrays p) {
  const Shared<int32_t> words = dynamic_shared<int32_t>();
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  if (threadIdx.x < 32) {
    store_shared(words + lane, load_global(p.in + lane));
    named_barrier_arrive(1, 64);
  } else {
    named_barrier_sync(1, 64);
    store_global(p.out + lane, load_shared(words + (31 - lane)));
  }
}

TEST(Emulator, NamedBarriersHandOver) {
  DeviceBuffer<int32_t> in("in", iota(32)), out("out", 32, Access::kWrite);
  for (Order order : kOrders) {
    const Report report =
        launch(hand_over, {{1}, {64}, 128}, {in.data(), out.data(), 32}, {.order = order});
    ASSERT_TRUE(report.ok()) << report.text();
    EXPECT_EQ(out[0], 31);
    EXPECT_EQ(out[31], 0);
  }
}

// Blocks leave a sum each; the last to come adds them up in order.
struct Sums {
  int32_t* parts;
  int32_t* arrived;
  int32_t* out;
};

void last_block_adds(Sums p) {
  const Shared<int32_t> last = dynamic_shared<int32_t>();
  if (threadIdx.x == 1) store_global(p.parts + blockIdx.x, static_cast<int32_t>(blockIdx.x) + 1);
  __syncthreads();
  if (threadIdx.x == 0) store_shared(last, atomic_add_acq_rel(p.arrived, 1));
  __syncthreads();
  if (load_shared(last) + 1 < static_cast<int32_t>(gridDim.x)) return;
  int32_t sum = 0;
  for (uint32_t b = 0; b < gridDim.x; ++b) sum = 10 * sum + load_global(p.parts + b);
  if (threadIdx.x == 0) store_global(p.out, sum);
}

TEST(Emulator, MessagesBetweenBlocksNeedReleaseAcquireAndBarriers) {
  const auto run = [](const Options& options) {
    DeviceBuffer<int32_t> parts("parts", 4, Access::kMessage), out("out", 1, Access::kWrite);
    DeviceBuffer<int32_t> arrived("arrived", std::vector<int32_t>{0}, Access::kMessage);
    Report report = launch(last_block_adds, {{4}, {64}, 4},
                           {parts.data(), arrived.data(), out.data()}, options);
    if (report.ok()) {
      EXPECT_EQ(out[0], 1234);
    }
    return report;
  };
  for (uint32_t seed = 1; seed < 6; ++seed) {
    const Options options = {.order = Order::kRandom, .seed = seed, .resident_blocks = 3};
    const Report right = run(options);
    ASSERT_TRUE(right.ok()) << right.text();
    ASSERT_EQ(right.sites.size(), 4u);  // two barriers, release, acquire
    for (emulator::SiteId site : right.sites) {
      Options off = options;
      off.off = {site};
      EXPECT_FALSE(run(off).ok()) << emulator::SiteTable::instance().at(site).text();
    }
  }
}

// Threads count into one word of shared memory; barriers before and after.
void count_threads(Arrays p) {
  const Shared<uint32_t> count = dynamic_shared<uint32_t>();
  if (threadIdx.x == 0) store_shared(count, 0);
  __syncthreads();
  atomic_add_shared(count, threadIdx.x);
  atomic_add_shared(count, 1);
  __syncthreads();
  if (threadIdx.x == 5) store_global(p.out, static_cast<int32_t>(load_shared(count)));
}

TEST(Emulator, AtomicSumsRaceWithPlainAccessesOnly) {
  for (Order order : kOrders) {
    DeviceBuffer<int32_t> out("out", 1, Access::kWrite);
    const Report report =
        launch(count_threads, {{1}, {64}, 4}, {nullptr, out.data(), 1}, {.order = order});
    ASSERT_TRUE(report.ok()) << report.text();
    EXPECT_EQ(out[0], 64 * 63 / 2 + 64);
    ASSERT_EQ(report.sites.size(), 2u);
    for (const emulator::SiteId barrier : report.sites) {
      const Report wrong = launch(count_threads, {{1}, {64}, 4}, {nullptr, out.data(), 1},
                                  {.order = order, .off = {barrier}});
      ASSERT_EQ(wrong.faults.size(), 1u);
      EXPECT_THAT(wrong.faults[0].kind,
                  testing::AnyOf(FaultKind::kRace, FaultKind::kUninitialised));
    }
  }
}

}  // namespace
}  // namespace deltad::cuda
