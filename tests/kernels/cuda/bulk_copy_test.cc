// The emulator's mbarriers and bulk copies: a ring between a thread that copies and warps that
// read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
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
using emulator::Report;

constexpr int32_t kStages = 3, kPieces = 8, kPiece = 64;  // words

struct Ring {
  const int32_t* in;  // [kPieces, kPiece]
  int32_t* out;       // [kPiece]: sums over pieces
};

// Warp 2's first thread copies; warps 0 and 1 add up.
void ring_kernel(Ring p) {
  const Shared<int32_t> data = dynamic_shared<int32_t>();
  const Shared<uint64_t> full = shared_cast<uint64_t>(data + kStages * kPiece);
  const Shared<uint64_t> empty = full + kStages;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  if (thread == 0) {
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(full + s, 1);
      mbarrier_init(empty + s, kPiece);
    }
    fence_proxy_async();
  }
  __syncthreads();
  if (thread >= kPiece) {
    if (thread > kPiece) return;
    for (int i = 0; i < kPieces; ++i) {
      const int stage = i % kStages;
      if (i >= kStages) mbarrier_wait(empty + stage, static_cast<uint32_t>(i / kStages - 1) & 1);
      mbarrier_arrive_expect(full + stage, kPiece * 4);
      cp_async_bulk(data + stage * kPiece, p.in + i * kPiece, kPiece * 4, full + stage);
    }
    return;
  }
  int32_t sum = 0;
  for (int i = 0; i < kPieces; ++i) {
    const int stage = i % kStages;
    mbarrier_wait(full + stage, static_cast<uint32_t>(i / kStages) & 1);
    sum += (i + 1) * load_shared(data + (stage * kPiece + thread));
    mbarrier_arrive(empty + stage);
  }
  store_global(p.out + thread, sum);
}

constexpr uint32_t kRingBytes = kStages * (kPiece * 4 + 2 * 8);

std::vector<int32_t> run_ring(const Options& options, Report* report) {
  std::vector<int32_t> values(kPieces * kPiece);
  std::iota(values.begin(), values.end(), 0);
  const DeviceBuffer<int32_t> in("in", values), out("out", kPiece, Access::kWrite);
  *report = launch(ring_kernel, {{1}, {96}, kRingBytes}, {in.data(), out.data()}, options);
  return out.values();
}

TEST(BulkCopy, RingGivesTheSums) {
  for (emulator::Order order :
       {emulator::Order::kFifo, emulator::Order::kLifo, emulator::Order::kRandom}) {
    Report report;
    const std::vector<int32_t> out = run_ring({.order = order}, &report);
    ASSERT_TRUE(report.ok()) << report.text();
    for (int32_t t = 0; t < kPiece; ++t) {
      int32_t sum = 0;
      for (int32_t i = 0; i < kPieces; ++i) sum += (i + 1) * (i * kPiece + t);
      EXPECT_EQ(out[static_cast<size_t>(t)], sum);
    }
  }
}

TEST(BulkCopy, EverySiteOfTheRingMatters) { expect_every_site_matters(run_ring); }

struct WrongCopy {
  const int32_t* in;
  int32_t what;
};

void wrong_copy(WrongCopy p) {
  const Shared<int32_t> data = dynamic_shared<int32_t>();
  const Shared<uint64_t> barrier = shared_cast<uint64_t>(data + 64);
  if (threadIdx.x != 0) return;
  if (p.what > 0) mbarrier_init(barrier, 1);
  if (p.what > 1) fence_proxy_async();
  const auto bytes = static_cast<uint32_t>(p.what == 2 ? 24 : 64);
  cp_async_bulk(data + (p.what == 3 ? 1 : 0), p.in, bytes, barrier);
  if (p.what == 4) load_shared(data);
  if (p.what == 5) return;
  mbarrier_arrive_expect(barrier, p.what == 6 ? 128 : 64);
  mbarrier_wait(barrier, 0);
  load_shared(data);
  if (p.what == 7) mbarrier_wait(barrier, 1);
}

TEST(BulkCopy, SaysWhatIsWrong) {
  const std::pair<FaultKind, const char*> expected[] = {
      {FaultKind::kUninitialised, "which nobody wrote"},
      {FaultKind::kStale, "no fence_proxy_async"},
      {FaultKind::kMisaligned, "a bulk copy of 24 bytes"},
      {FaultKind::kMisaligned, "64 bytes of shared memory at 4"},
      {FaultKind::kInFlight, "where a copy of thread 0 is under way"},
      {FaultKind::kInFlight, "the block ends with bulk copies under way"},
      {FaultKind::kDeadlock, "1 threads wait in an mbarrier"},  // more bytes than come
      {FaultKind::kDeadlock, "1 threads wait in an mbarrier"},  // a phase that nobody ends
  };
  const DeviceBuffer<int32_t> in("in", std::vector<int32_t>(64));
  for (int32_t what = 0; what < static_cast<int32_t>(std::size(expected)); ++what) {
    const Report report = launch(wrong_copy, {{1}, {32}, 264}, {in.data(), what});
    ASSERT_FALSE(report.ok()) << "case " << what;
    EXPECT_EQ(report.faults[0].kind, expected[what].first) << report.text();
    EXPECT_THAT(report.text(), testing::HasSubstr(expected[what].second)) << "case " << what;
  }
}

}  // namespace
}  // namespace deltad::cuda
