// The emulator's clusters: blocks that copy for one another, and what can go wrong between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "kernels/cuda/device.h"
#include "tests/kernels/cuda/mutations.h"
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

constexpr Order kOrders[] = {Order::kFifo, Order::kLifo, Order::kRandom};
constexpr int32_t kStages = 3, kPieces = 8, kPiece = 64;  // words

struct Ring {
  const int32_t* in;  // [kPieces, kPiece]
  int32_t* out;       // [blocks, kPiece]: sums over pieces
};

// Each block needs all pieces. Warp 2's first thread copies its block's part of them to all blocks;
// warps 0 and 1 add up, and tell all blocks when a stage that will be used again is free.
void ring_kernel(Ring p) {
  const Shared<int32_t> data = dynamic_shared<int32_t>();
  const Shared<uint64_t> full = shared_cast<uint64_t>(data + kStages * kPiece);
  const Shared<uint64_t> empty = full + kStages;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const auto blocks = static_cast<int32_t>(cluster_blocks());
  const int32_t part = kPiece / blocks, first = static_cast<int32_t>(cluster_rank()) * part;
  if (thread == 0) {
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(full + s, 1);
      mbarrier_init(empty + s, static_cast<uint32_t>(2 * blocks));
    }
    mbarrier_init_fence();
  }
  cluster_arrive();
  cluster_wait();
  if (thread >= kPiece) {
    if (thread > kPiece) return;
    for (int i = 0; i < kPieces; ++i) {
      const int stage = i % kStages;
      if (i >= kStages) mbarrier_wait(empty + stage, static_cast<uint32_t>(i / kStages - 1) & 1);
      mbarrier_arrive_expect(full + stage, kPiece * 4);
      bulk_copy_multicast(data + (stage * kPiece + first), p.in + i * kPiece + first,
                          static_cast<uint32_t>(part * 4), full + stage,
                          static_cast<uint16_t>((1 << blocks) - 1));
    }
    return;
  }
  int32_t sum = 0;
  for (int i = 0; i < kPieces; ++i) {
    const int stage = i % kStages;
    mbarrier_wait(full + stage, static_cast<uint32_t>(i / kStages) & 1);
    sum += (i + 1) * load_shared(data + (stage * kPiece + thread));
    if (in_bounds(i + kStages < kPieces)) {
      __syncwarp();
      if (thread % 32 < blocks) {
        mbarrier_arrive_at(empty + stage, static_cast<uint32_t>(thread % 32));
      }
    }
  }
  store_global(p.out + static_cast<int32_t>(blockIdx.y) * kPiece + thread, sum);
}

constexpr uint32_t kRingBytes = kStages * (kPiece * 4 + 2 * 8);

std::vector<int32_t> run_ring(uint32_t cluster, const Options& options, Report* report) {
  std::vector<int32_t> values(kPieces * kPiece);
  std::iota(values.begin(), values.end(), 0);
  const DeviceBuffer<int32_t> in("in", values), out("out", size_t{4} * kPiece, Access::kWrite);
  *report = launch(ring_kernel, {{1, 4}, {96}, kRingBytes, {1, cluster}}, {in.data(), out.data()},
                   options);
  return out.values();
}

TEST(Cluster, RingGivesTheSums) {
  for (const uint32_t cluster : {1u, 2u, 4u}) {
    for (const Order order : kOrders) {
      for (const uint32_t resident : {1u, 4u}) {
        Report report;
        const std::vector<int32_t> out =
            run_ring(cluster, {.order = order, .resident_blocks = resident}, &report);
        ASSERT_TRUE(report.ok()) << report.text();
        for (int32_t t = 0; t < 4 * kPiece; ++t) {
          int32_t sum = 0;
          for (int32_t i = 0; i < kPieces; ++i) sum += (i + 1) * (i * kPiece + t % kPiece);
          EXPECT_EQ(out[static_cast<size_t>(t)], sum);
        }
      }
    }
  }
}

TEST(Cluster, EverySiteOfTheRingMatters) {
  for (const uint32_t cluster : {2u, 4u}) {
    expect_every_site_matters(
        [&](const Options& options, Report* report) { return run_ring(cluster, options, report); });
  }
}

struct Places {
  int32_t* out;  // of each block: its number in the grid, its rank, its cluster's size
};

void places_kernel(Places p) {
  const uint32_t number = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  int32_t* at = p.out + 3 * number;
  store_global(at, static_cast<int32_t>(number));
  store_global(at + 1, static_cast<int32_t>(cluster_rank()));
  store_global(at + 2, static_cast<int32_t>(cluster_blocks()));
}

TEST(Cluster, RanksGoAlongXThenYThenZ) {
  const DeviceBuffer<int32_t> out("out", 48 * 3, Access::kWrite);
  const Report report = launch(places_kernel, {{4, 6, 2}, {1}, 0, {2, 3, 1}}, {out.data()});
  ASSERT_TRUE(report.ok()) << report.text();
  for (uint32_t b = 0; b < 48; ++b) {
    EXPECT_EQ(out[3 * b], static_cast<int32_t>(b));
    EXPECT_EQ(out[3 * b + 1], static_cast<int32_t>(b % 4 % 2 + b / 4 % 6 % 3 * 2));
    EXPECT_EQ(out[3 * b + 2], 6);
  }
}

// What two blocks of a warp each do wrong, by number.
struct Wrong {
  const int32_t* in;
  int32_t what;
};

void wrong_kernel(Wrong p) {
  const Shared<int32_t> data = dynamic_shared<int32_t>();
  const Shared<uint64_t> barrier = shared_cast<uint64_t>(data + 64);
  const uint32_t rank = cluster_rank(), other = rank ^ 1;
  const bool first = threadIdx.x == 0;
  const auto meet = [] {
    cluster_arrive();
    cluster_wait();
  };
  if (first) {
    mbarrier_init(barrier, 1);
    if (p.what != 0) mbarrier_init_fence();
  }
  switch (p.what) {
    case 0:  // no fence
      meet();
      if (first && rank == 0) mbarrier_arrive_at(barrier, other);
      if (first && rank == 1) mbarrier_wait(barrier, 0);
      break;
    case 1:  // before the others have made theirs
      if (first && rank == 0) mbarrier_arrive_at(barrier, other);
      meet();
      break;
    case 2:  // on something else
      if (first) store_shared(data, 0);
      meet();
      if (first && rank == 0) mbarrier_arrive_at(shared_cast<uint64_t>(data + 2), other);
      if (first && rank == 1) mbarrier_wait(barrier, 0);
      break;
    case 3:  // ends although an arrival may come
      meet();
      if (first && rank == 0) mbarrier_arrive_at(barrier, other);
      break;
    case 4:  // ends although a copy may come
      meet();
      if (!first || rank == 1) break;
      mbarrier_arrive_expect(barrier, 64);
      bulk_copy_multicast(data, p.in, 64, barrier, 3);
      mbarrier_wait(barrier, 0);
      break;
    case 5:
      meet();
      if (first) mbarrier_arrive_at(barrier, 2);
      break;
    case 6:
      meet();
      if (first) bulk_copy_multicast(data, p.in, 64, barrier, 4);
      break;
    case 7:  // one waits for a phase that nobody ends, its threads never come to the barrier
      if (first && rank == 1) mbarrier_wait(barrier, 0);
      meet();
      break;
    case 8:
      cluster_arrive();
      cluster_arrive();
      break;
    case 9:
      cluster_wait();
      break;
    case 10:  // into what the other still reads
      if (first) store_shared(data, 1);
      meet();
      if (!first) break;
      if (rank == 1) load_shared(data);
      mbarrier_arrive_expect(barrier, 64);
      if (rank == 0) bulk_copy_multicast(data, p.in, 64, barrier, 3);
      mbarrier_wait(barrier, 0);
      break;
    case 11:  // waits for half of what comes
      meet();
      if (!first) break;
      mbarrier_arrive_expect(barrier, 64);
      bulk_copy_multicast(data + static_cast<int32_t>(rank) * 16, p.in, 64, barrier, 3);
      mbarrier_wait(barrier, 0);
      load_shared(data + static_cast<int32_t>(other) * 16);
      break;
    case 12:  // lanes of a warp at two places
      if (threadIdx.x < 16) {
        cluster_arrive();
      } else {
        cluster_arrive();
      }
      cluster_wait();
      break;
    default:
      break;
  }
}

TEST(Cluster, SaysWhatIsWrong) {
  using testing::AnyOf;
  using testing::HasSubstr;
  const std::pair<testing::Matcher<FaultKind>, testing::Matcher<std::string>> expected[] = {
      {FaultKind::kRace, HasSubstr("unordered with a write of thread 0 of block (0, ")},
      {AnyOf(FaultKind::kRace, FaultKind::kUninitialised),
       AnyOf(HasSubstr("of block 1 of the cluster, unordered with a write of thread 0 of block"),
             HasSubstr("of block 1 of the cluster, which nobody wrote"))},
      {FaultKind::kUninitialised,
       AnyOf(HasSubstr("no mbarrier was made at byte 8"), HasSubstr("which nobody wrote"))},
      {FaultKind::kRemote, AnyOf(HasSubstr("block 1 of the cluster has ended"),
                                 HasSubstr("the block ends without having waited for what"))},
      {AnyOf(FaultKind::kRemote, FaultKind::kInFlight),
       AnyOf(HasSubstr("block 1 of the cluster has ended"),
             HasSubstr("the block ends with bulk copies under way"))},
      {FaultKind::kRemote, HasSubstr("block 2 of a cluster of 2")},
      {FaultKind::kRemote, HasSubstr("block 2 of a cluster of 2")},
      {FaultKind::kDeadlock,
       testing::AllOf(HasSubstr("block (0, 1, 0), thread 0: 1 threads wait in an mbarrier, for 1 "
                                "arrivals and 0 bytes"),
                      HasSubstr("block (0, 0, 0), thread 0: 32 threads wait in the cluster's "
                                "barrier, for 32 threads of the cluster"))},
      {FaultKind::kDivergence, HasSubstr("again without having waited")},
      {FaultKind::kDivergence, HasSubstr("without having arrived")},
      {AnyOf(FaultKind::kRace, FaultKind::kInFlight),
       AnyOf(HasSubstr("of block 1 of the cluster, unordered with a"),
             HasSubstr("where a copy of thread 0 of block (0, 0, 0) is under way"))},
      {FaultKind::kInFlight, AnyOf(HasSubstr("where a copy of thread 0 of block (0, "),
                                   HasSubstr("the block ends with bulk copies under way"))},
      {FaultKind::kDivergence, HasSubstr("while lanes of its warp are in barrier.cluster.arrive")},
  };
  const DeviceBuffer<int32_t> in("in", std::vector<int32_t>(64));
  for (int32_t what = 0; what < static_cast<int32_t>(std::size(expected)); ++what) {
    for (const Order order : kOrders) {
      const Report report =
          launch(wrong_kernel, {{1, 2}, {32}, 264, {1, 2}}, {in.data(), what}, {.order = order});
      ASSERT_FALSE(report.ok()) << "case " << what;
      EXPECT_THAT(report.faults[0].kind, expected[what].first)
          << "case " << what << ": " << report.text();
      EXPECT_THAT(report.text(), expected[what].second) << "case " << what;
    }
  }
}

}  // namespace
}  // namespace deltad::cuda
