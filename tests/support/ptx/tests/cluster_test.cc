// Clusters against the host: each other's shared memory, multicast copies, what each wait is for.
#include <gmock/gmock.h>

#include <random>
#include <vector>

#include "tests/support/ptx/tests/ptx_run.h"
#include "tests/support/ptx/tests/written_kernel.h"

namespace deltad::ptx {
namespace {

using testing::HasSubstr;

class Clusters : public testing::Test {
 protected:
  void SetUp() override {
    module_ = load_test_kernels("sm_90a", "cluster_sm_90a");
    ASSERT_NE(module_, nullptr);
  }
  // "" or what is wrong. Two clusters of `blocks`.
  std::string sum(uint32_t blocks, const Options& options, Outcome& o);
  std::string exchange(const Options& options, Outcome& o);
  std::string pass_on(const Options& options, Outcome& o);

  std::unique_ptr<Module> module_;
  std::mt19937 random_{7};
};

std::string Clusters::sum(uint32_t blocks, const Options& options, Outcome& o) {
  constexpr uint32_t kRows = 5;
  std::vector<uint64_t> in(2 * kRows * 128), out(2 * blocks * 128);
  for (uint64_t& x : in) x = random_();
  Memory memory;
  memory.add("in", std::span<const uint64_t>(in));
  memory.add("out", std::span(out));
  Options clustered = options;
  clustered.cluster.x = blocks;
  o = module_->run("cluster_sum", {2 * blocks, 1, 1}, {160, 1, 1}, 0,
                   params(in.data(), out.data(), kRows), memory, clustered);
  if (o.fault) return o.fault->text();
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t block = i / 128;
    uint64_t sum = 0;
    for (size_t r = 0; r < kRows; ++r) sum += in[(block / blocks * kRows + r) * 128 + i % 128];
    if (out[i] != (block % blocks + 1) * sum) return "sum " + std::to_string(i) + " is wrong";
  }
  return "";
}

// 4 × 2 blocks in clusters of 2 × 2.
std::string Clusters::exchange(const Options& options, Outcome& o) {
  std::vector<uint32_t> in(8 * 64), out(8 * 64);
  for (uint32_t& x : in) x = static_cast<uint32_t>(random_());
  Memory memory;
  memory.add("in", std::span<const uint32_t>(in));
  memory.add("out", std::span(out));
  Options clustered = options;
  clustered.cluster = {2, 2, 1};
  o = module_->run("exchange", {4, 2, 1}, {64, 1, 1}, 0, params(in.data(), out.data()), memory,
                   clustered);
  if (o.fault) return o.fault->text();
  for (uint32_t i = 0; i < out.size(); ++i) {
    const uint32_t x = i / 64 % 4, y = i / 256, next = (x % 2 + 2 * y + 1) % 4;
    const uint32_t from = (x / 2 * 2 + next % 2 + 4 * (next / 2)) * 64 + i % 64;
    if (out[i] != 2 * in[from] + 64) return "element " + std::to_string(i) + " is wrong";
  }
  return "";
}

std::string Clusters::pass_on(const Options& options, Outcome& o) {
  std::vector<uint32_t> in(6 * 64), out(6 * 64);
  for (uint32_t& x : in) x = static_cast<uint32_t>(random_());
  Memory memory;
  memory.add("in", std::span<const uint32_t>(in));
  memory.add("out", std::span(out));
  Options clustered = options;
  clustered.cluster.x = 3;
  o = module_->run("pass_on", {6, 1, 1}, {64, 1, 1}, 0, params(in.data(), out.data()), memory,
                   clustered);
  if (o.fault) return o.fault->text();
  for (uint32_t i = 0; i < out.size(); ++i) {
    const uint32_t block = i / 64, before = block / 3 * 3 + (block + 2) % 3;
    if (out[i] != in[before * 64 + i % 64]) return "element " + std::to_string(i) + " is wrong";
  }
  return "";
}

TEST_F(Clusters, CopiesArriveInEveryBlockOfTheirMask) {
  Outcome out;
  for (const uint32_t blocks : {1U, 2U, 4U, 8U}) {
    for (const Options& o : schedules()) EXPECT_EQ(sum(blocks, o, out), "") << blocks;
  }
}

TEST_F(Clusters, BlocksReachEachOthersMemory) {
  Outcome out;
  for (const Options& o : schedules()) {
    EXPECT_EQ(exchange(o, out), "");
    EXPECT_EQ(pass_on(o, out), "");
  }
}

// Without its fence, a barrier of the cluster, a wait, an arrival or a copy.
TEST_F(Clusters, AMulticastPipelineNeedsEachOfItsParts) {
  expect_mutations_caught(*module_, "cluster_sum", 9,
                          [&](const Options& o, Outcome& out) { return sum(2, o, out); });
}

// That, or an arrival or a wait has the block's scope only.
TEST_F(Clusters, WhatIsPassedOnMustBePublished) {
  expect_mutations_caught(*module_, "pass_on", 7,
                          [&](const Options& o, Outcome& out) { return pass_on(o, out); });
}

TEST_F(Clusters, AnExchangeNeedsItsBarriers) {
  expect_mutations_caught(*module_, "exchange", 4,
                          [&](const Options& o, Outcome& out) { return exchange(o, out); });
}

// Two blocks of one warp, in PTX by hand. %r1: this block's rank, %r2: the other's, %r3: the
// address of `buffer` in the other; %p1: of rank 0, %p2: of lane 0, %p4: both. After a barrier,
// rank 1 goes on first (last in Order::kLifo).
class ClusterFaults : public testing::Test {
 protected:
  std::string run(const std::string& body, Options options = {}) {
    auto m = Module::load(written_kernel(
        "mov.u32 %r1, %cluster_ctarank;\nxor.b32 %r2, %r1, 1;\nmov.u32 %r4, buffer;\n"
        "mapa.shared::cluster.u32 %r3, %r4, %r2;\nsetp.eq.u32 %p1, %r1, 0;\n"
        "setp.eq.u32 %p2, %t, 0;\nadd.u32 %r6, %r1, %t;\nsetp.eq.u32 %p4, %r6, 0;\n" +
        body));
    if (!m.ok()) return m.status().message();
    options.cluster = {2, 1, 1};
    return run(*m.value(), {2, 1, 1}, options);
  }
  std::string run(Module& m, Dim3 grid, Options options) {
    Memory memory;
    memory.add("data", std::span<uint32_t>(data_));
    options.max_steps = 100'000;
    return message(m.run("k", grid, {32, 1, 1}, 0, params(data_.data()), memory, options));
  }
  std::string launch(Dim3 grid, Dim3 cluster, const std::string& target = "sm_90a",
                     const std::string& directives = "") {
    auto m = Module::load(written_kernel("ret;", target, directives));
    return m.ok() ? run(*m.value(), grid, {.cluster = cluster}) : m.status().message();
  }
  static constexpr const char* kBarrier =
      "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n";
  static constexpr const char* kInit = "@%p2 mbarrier.init.shared::cta.b64 [buffer], 1;\n";
  static constexpr const char* kFence = "fence.mbarrier_init.release.cluster;\n";
  static constexpr const char* kArrive =
      "@%p2 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];\n";
  static constexpr const char* kStore = "@%p2 st.shared::cluster.u32 [%r3+64], 1;\n";
  alignas(16) std::array<uint32_t, 64> data_{};
  const std::string barrier_ = kBarrier, init_ = kInit, fence_ = kFence;
};

TEST_F(ClusterFaults, TheOtherBlockMustHaveStarted) {
  EXPECT_THAT(run(kStore), HasSubstr("nothing orders the start of block (1,0,0) before this"));
  EXPECT_EQ(run(barrier_ + kStore + kBarrier + "ret;"), "no fault");
}

TEST_F(ClusterFaults, ItsMBarrierMustHaveBeenMadeBefore) {
  EXPECT_EQ(run(init_ + kFence + kBarrier + kArrive + kBarrier + "ret;"), "no fault");
  EXPECT_THAT(run(barrier_ + init_ + kFence +
                  "@%p4 mbarrier.arrive.release.cluster.shared::"
                  "cluster.b64 _, [%r3];\n" +
                  kBarrier + "ret;"),
              HasSubstr("nothing orders the mbarrier's init before this"));
  EXPECT_THAT(
      run(init_ + kBarrier + kArrive + kBarrier + "ret;"),
      HasSubstr("no fence.mbarrier_init came after the mbarrier's init, which is of block"));
  EXPECT_THAT(run(barrier_ + kArrive + kBarrier + "ret;"),
              HasSubstr("no mbarrier at shared address 0 of block (0,0,0)"));
}

// The fence is for a relaxed arrival, too; but it makes known only the mbarriers.
TEST_F(ClusterFaults, ARelaxedArrivalMakesKnownWhatWasFenced) {
  const std::string relaxed =
      "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;\n";
  EXPECT_EQ(run(init_ + kFence + relaxed + kArrive + kBarrier + "ret;"), "no fault");
  EXPECT_THAT(run(init_ + relaxed + kArrive + kBarrier + "ret;"),
              HasSubstr("nothing orders the mbarrier's init"));
  const std::string read = "ld.shared::cluster.u32 %r5, [%r3+64];\n";
  const std::string store = "@%p2 st.shared.u32 [buffer+64], 1;\n";
  EXPECT_THAT(run(store + fence_ + relaxed + read + kBarrier + "ret;"), HasSubstr("race: warp 0"));
  EXPECT_EQ(run(store + "fence.acq_rel.cluster;\n" + relaxed + read + kBarrier + "ret;"),
            "no fault");
}

// Whether the access happens to come first or not.
TEST_F(ClusterFaults, ABlockMustNotEndWhileAnotherUsesItsMemory) {
  const std::string body = barrier_ + "@%p1 ret;\n" + kStore + "ret;";
  const std::string m = run(body);
  EXPECT_THAT(m, HasSubstr("'@%p2 st.shared::cluster.u32 [%r3+64], 1'"));
  EXPECT_THAT(m, HasSubstr("nothing orders that before the end of that block [block (1,0,0)"));
  EXPECT_THAT(run(body, {.order = Order::kLifo}),
              HasSubstr("block (0,0,0), whose shared memory this is, has ended"));
}

TEST_F(ClusterFaults, AddressesAreChecked) {
  EXPECT_THAT(run(barrier_ + "ld.shared::cluster.u32 %r5, [%r3+256];\nret;"),
              HasSubstr("shared memory has 256 bytes"));
  EXPECT_THAT(run("mapa.shared::cluster.u32 %r5, %r4, 2;\nret;"),
              HasSubstr("rank 2 in a cluster of 2 blocks"));
  EXPECT_THAT(run(barrier_ + "ld.shared.u32 %r5, [%r3];\nret;"),
              HasSubstr("the address is of block (0,0,0), and not .shared::cluster"));
  EXPECT_THAT(run("mbarrier.arrive.shared::cluster.b64 %rd1, [%r3];\nret;"),
              HasSubstr("does not know mbarrier"));
}

TEST_F(ClusterFaults, AccessesOfTwoBlocksRace) {
  EXPECT_THAT(run(barrier_ + kStore + "ld.shared.u32 %r5, [buffer+64];\n" + kBarrier + "ret;"),
              HasSubstr("race: warp 0 of the cluster's block"));
}

// Another block's arrival publishes stores only by the cluster's scope, on both sides.
TEST_F(ClusterFaults, AnArrivalOfTheBlocksScopeOrdersNothingBeyondIt) {
  const auto through = [&](const std::string& arrive, const std::string& wait) {
    return run(init_ + kFence + kBarrier + "@%p1 bra first;\n" + kStore + "@%p2 mbarrier.arrive" +
               arrive + ".shared::cluster.b64 _, [%r3];\nbra over;\nfirst:\nmbarrier.try_wait" +
               wait + ".shared.b64 %p3, [buffer], 0;\n@!%p3 bra first;\n" +
               "ld.shared.u32 %r5, [buffer+64];\nover:\n" + kBarrier + "ret;");
  };
  EXPECT_EQ(through(".release.cluster", ".parity.acquire.cluster"), "no fault");
  EXPECT_THAT(through("", ".parity.acquire.cluster"), HasSubstr("race"));
  EXPECT_THAT(through(".release.cluster", ".parity"), HasSubstr("race"));
  EXPECT_THAT(through(".release.cluster", ".parity.relaxed.cluster"), HasSubstr("race"));
}

// But it says that reads are over: what they read may be overwritten.
TEST_F(ClusterFaults, AnArrivalOfTheBlocksScopeEndsReads) {
  const auto after = [&](const std::string& arrive) {
    return run(init_ + kFence + kBarrier + "@%p1 bra first;\nld.shared.u32 %r5, [buffer+64];\n" +
               arrive +
               "bra over;\nfirst:\nmbarrier.try_wait.parity.shared.b64 %p3, [buffer], 0;\n" +
               "@!%p3 bra first;\n" + kStore + "over:\n" + kBarrier + "ret;");
  };
  EXPECT_EQ(after("@%p2 mbarrier.arrive.shared::cluster.b64 _, [%r3];\n"), "no fault");
  const std::string early = "ld.shared.u32 %r5, [buffer+64];\n";
  EXPECT_THAT(after("@%p2 mbarrier.arrive.shared::cluster.b64 _, [%r3];\n" + early),
              HasSubstr("race: warp 0 of the cluster's block 1 read shared address 64"));
}

TEST_F(ClusterFaults, ABarrierOfTheClusterIsArriveThenWait) {
  EXPECT_THAT(run("barrier.cluster.wait.aligned;\nret;"), HasSubstr("no barrier.cluster.arrive"));
  EXPECT_THAT(run("barrier.cluster.arrive.aligned;\nbarrier.cluster.arrive.aligned;\nret;"),
              HasSubstr("arrives again with no barrier.cluster.wait"));
  // Blocks that ended do not count.
  EXPECT_EQ(run("@%p1 ret;\n" + barrier_ + "ret;"), "no fault");
}

TEST_F(ClusterFaults, ADeadlockNamesWhereEachBlockWaits) {
  const std::string m = run(init_ + "bar.sync 0;\n@%p1 bra first;\n" + kBarrier +
                            "ret;\nfirst:\nmbarrier.try_wait.parity.shared.b64 %p3, [buffer], 0;\n"
                            "@!%p3 bra first;\nret;");
  EXPECT_THAT(m, HasSubstr("deadlock"));
  EXPECT_THAT(m, HasSubstr("[block (0,0,0)"));
  EXPECT_THAT(m, HasSubstr("block (1,0,0) waits after 'barrier.cluster.wait.acquire.aligned'"));
}

TEST_F(ClusterFaults, MulticastCopiesAreChecked) {
  const auto copy = [&](const std::string& bytes, const std::string& barrier,
                        const std::string& mask) {
    return run(init_ + kFence + kBarrier +
               "@%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
               "cluster [buffer+16], [%data], " +
               bytes + ", [" + barrier + "], " + mask + ";\n" + kBarrier + "ret;");
  };
  EXPECT_THAT(copy("16", "buffer", "0"), HasSubstr("mask 0 in a cluster of 2 blocks"));
  EXPECT_THAT(copy("16", "buffer", "6"), HasSubstr("mask 6 in a cluster of 2 blocks"));
  EXPECT_THAT(copy("16", "%r3", "3"), HasSubstr("the mbarrier is in another block than the copy"));
  EXPECT_THAT(copy("256", "buffer", "3"), HasSubstr("shared memory has 256 bytes"));
  EXPECT_THAT(copy("16", "buffer", "2"), HasSubstr("ended while this copy was in flight"));
}

TEST_F(ClusterFaults, LaunchesAreChecked) {
  EXPECT_EQ(launch({4, 2, 1}, {2, 2, 1}), "no fault");
  EXPECT_THAT(launch({3, 1, 1}, {2, 1, 1}), HasSubstr("do not divide the grid (3,1,1)"));
  EXPECT_THAT(launch({16, 1, 1}, {16, 1, 1}), HasSubstr("1 to 8 blocks make one"));
  EXPECT_THAT(launch({2, 1, 1}, {2, 1, 1}, "sm_80"), HasSubstr("sm_80 has no clusters"));
  const std::string two = ".explicitcluster\n.reqnctapercluster 2, 1, 1\n";
  EXPECT_EQ(launch({2, 1, 1}, {2, 1, 1}, "sm_90a", two), "no fault");
  EXPECT_THAT(launch({2, 1, 1}, {}, "sm_90a", two), HasSubstr("compiled for (2,1,1)"));
}

}  // namespace
}  // namespace deltad::ptx
