// Ranks whose GPUs do not reach each other's memory: NCCL brings the parts of sums together. The
// bits are those over peer memory, each wait is needed, and what fails or hangs is named.
#include "backend/cuda/nccl_ranks.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <map>
#include <random>
#include <thread>

#include "backend/cuda/cuda_memory.h"
#include "tests/cuda/rank_sums.h"
#include "tests/cuda/request_life.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;
using testing::kLong;
using testing::named_calls;
using testing::NamedCall;
using testing::RankSums;
using testing::RequestFiles;
using testing::RequestLife;

constexpr Duration kShort = std::chrono::milliseconds(300);

// GPUs without peers, and nothing found on them or left.
class NcclRanksTest : public ::testing::Test {
 protected:
  static emulated_gpu::Options options(int devices = 2,
                                       emulated_gpu::Order order = emulated_gpu::Order::kLatest) {
    emulated_gpu::Options options;
    options.devices = devices;
    options.order = order;
    options.site_frames = 1;
    options.peers = 1;
    return options;
  }
  void SetUp() override { emulated_gpu::reset(options()); }
  void TearDown() override {
    EXPECT_EQ(emulated_gpu::report(), "");
    EXPECT_EQ(emulated_gpu::leaks(), "");
    emulated_gpu::reset();
  }
};

std::string described(int ranks, CommunicatorChoice choice) {
  auto made = make_cuda_ranks(ranks, kLong, choice);
  return made.ok() ? made->communicators[0]->description() : made.status().message();
}

TEST_F(NcclRanksTest, AreChosenWhereThereIsNoPeerMemory) {
  const std::string peer = "sums over peer memory", nccl = "sums by NCCL 2.28.9";
  const std::string no_peers =
      "GPU 0 cannot reach the memory of GPU 1 (NVLink, or peer access over PCIe)";
  EXPECT_EQ(described(2, CommunicatorChoice::kAuto), nccl);
  EXPECT_EQ(described(2, CommunicatorChoice::kNccl), nccl);
  EXPECT_EQ(described(2, CommunicatorChoice::kPeer), "communicator: peer: " + no_peers);
  auto islands = options(4);
  islands.peers = 2;
  emulated_gpu::reset(islands);
  EXPECT_EQ(described(2, CommunicatorChoice::kAuto), peer);
  EXPECT_EQ(described(2, CommunicatorChoice::kNccl), nccl);
  EXPECT_EQ(described(4, CommunicatorChoice::kAuto), nccl);
  auto without = options();
  without.nccl = false;
  emulated_gpu::reset(without);
  EXPECT_THAT(described(2, CommunicatorChoice::kAuto),
              ::testing::StartsWith(no_peers + ", and so ranks need NCCL: NCCL cannot be used: "));
  EXPECT_THAT(described(2, CommunicatorChoice::kNccl),
              ::testing::StartsWith("communicator: nccl: NCCL cannot be used: "));
}

// Small parts, large ones whose rows do not divide, and fewer rows than ranks.
constexpr RankSums::Shape kShapes[] = {{1, 64}, {3, 250}, {37, 2048}, {5, 14000}};
bool is_large(RankSums::Shape shape) { return shape.rows * shape.columns * 4 >= 256 << 10; }

TEST_F(NcclRanksTest, GiveTheBitsOfPeerMemory) {
  for (const int ranks : {2, 4, 8}) {
    std::vector<std::vector<float>> expected;
    for (const auto choice : {CommunicatorChoice::kPeer, CommunicatorChoice::kNccl}) {
      auto gpus = options(ranks, emulated_gpu::Order::kRandom);
      if (choice == CommunicatorChoice::kPeer) gpus.peers = 0;
      emulated_gpu::reset(gpus);
      auto sums = RankSums::make(ranks, choice);
      ASSERT_TRUE(sums.ok()) << sums.status().message();
      for (size_t i = 0; i < std::size(kShapes); ++i) {
        SCOPED_TRACE(::testing::Message() << ranks << " ranks, shape " << i);
        const auto found = sums->add(kShapes[i]);
        for (const Status& status : sums->statuses) ASSERT_TRUE(status.ok()) << status.message();
        if (choice == CommunicatorChoice::kPeer) expected.push_back(found[0]);
        for (const auto& of_rank : found) EXPECT_TRUE(of_rank == expected[i]);
      }
      // And a row's do not depend on its neighbours.
      const auto one = sums->add({1, 2048}, 5);
      EXPECT_TRUE(std::equal(one[0].begin(), one[0].end(), expected[2].begin() + 5 * 2048));
      EXPECT_EQ(emulated_gpu::report(), "");
    }
    ASSERT_TRUE(is_large(kShapes[2]) && is_large(kShapes[3]) && !is_large(kShapes[1]));
  }
}

TEST_F(NcclRanksTest, ServeRequestsAsOverPeerMemoryAndAccountForTheirMemory) {
  const RequestFiles files;
  std::vector<int32_t> expected;
  for (const auto order :
       {emulated_gpu::Order::kLatest, emulated_gpu::Order::kEager, emulated_gpu::Order::kRandom}) {
    for (const auto choice : {CommunicatorChoice::kPeer, CommunicatorChoice::kNccl}) {
      auto gpus = options(2, order);
      if (choice == CommunicatorChoice::kPeer) gpus.peers = 0;
      emulated_gpu::reset(gpus);
      RequestLife life(files, 2, kLong, testing::make_ranks(2, kLong, choice));
      ASSERT_TRUE(life.start().ok());
      for (int lives = 0; lives < 2; ++lives) {
        const Status status = life.live();
        ASSERT_TRUE(status.ok()) << status.message();
        if (expected.empty()) expected = life.tokens();
        EXPECT_EQ(life.tokens(), expected);
      }
      life.end();
      EXPECT_EQ(emulated_gpu::report(), "");
      EXPECT_EQ(emulated_gpu::leaks(), "");
    }
  }
}

// A small and a large sum of three ranks, as they are or with something broken; what was found.
std::string sums_found(const std::function<void()>& mutate, emulated_gpu::Order order) {
  emulated_gpu::Options options;
  options.devices = 3;
  options.peers = 1;
  options.site_frames = 1;
  options.order = order;
  emulated_gpu::reset(options);
  mutate();
  std::string found;
  {
    auto sums = RankSums::make(3, CommunicatorChoice::kNccl);
    if (!sums.ok()) return sums.status().message();
    for (const RankSums::Shape shape : {RankSums::Shape{2, 64}, {20, 4096}, {2, 64}}) {
      const auto of_ranks = sums->add(shape);
      for (size_t r = 0; r < 3; ++r) {
        found += sums->statuses[r].message();
        for (size_t i = 0; i < of_ranks[r].size(); i += 16) {
          const int64_t stride = shape.columns, at = static_cast<int64_t>(i);
          float sum = RankSums::value(0, at / stride, at % stride);
          for (int part = 1; part < 3; ++part)
            sum += RankSums::value(part, at / stride, at % stride);
          if (of_ranks[r][i] == RankSums::value(99, at / stride, at % stride) + sum) continue;
          found += "another sum\n";
          break;
        }
      }
    }
  }
  return found + emulated_gpu::report() + emulated_gpu::leaks();
}

const emulated_gpu::Order kOrders[] = {emulated_gpu::Order::kEager, emulated_gpu::Order::kRandom,
                                       emulated_gpu::Order::kLatest};

TEST_F(NcclRanksTest, WaitForNcclAndOrderAllWorkOnTheStreamOfSteps) {
  for (const auto order : kOrders) EXPECT_EQ(sums_found([] {}, order), "");
  const auto syncs = emulated_gpu::sync_sites();
  const auto works = emulated_gpu::work_sites();
  const auto broken = [](const std::function<void()>& mutate) {
    for (const auto order : kOrders)
      if (const std::string found = sums_found(mutate, order); !found.empty()) return found;
    return std::string();
  };
  int waits = 0, ordered = 0;
  for (const auto& site : syncs) {
    if (site.call != "ncclCommGetAsyncError") continue;
    if (!broken([&] { emulated_gpu::switch_off(site.key); }).empty()) ++waits;
  }
  for (const auto& site : works) {
    const bool mine = site.text.starts_with("nccl") || site.text.starts_with("deltad_sum_parts");
    if (!mine) continue;
    EXPECT_NE(broken([&] { emulated_gpu::misplace(site.key); }), "") << site.text;
    ++ordered;
  }
  EXPECT_EQ(waits, 1);    // the other question is whether NCCL has failed, which it does not here
  EXPECT_EQ(ordered, 3);  // the gathering, the exchange, the sum
  emulated_gpu::reset();
}

TEST_F(NcclRanksTest, NameARankThatDoesNotCome) {
  emulated_gpu::reset(options(3));
  auto sums = RankSums::make(3, CommunicatorChoice::kNccl, kShort);
  ASSERT_TRUE(sums.ok());
  sums->absent = 1;
  (void)sums->add({2, 64});
  const std::string expected = "rank 1 of 3: the others have waited for it for 0.3 s";
  for (const size_t r : {0, 2}) EXPECT_EQ(sums->statuses[r].message(), expected);
  EXPECT_EQ(sums->communicator(1).status().message(), expected);
}

TEST_F(NcclRanksTest, NameARankThatDoesNotConnect) {
  size_t call = 0;
  {
    ASSERT_TRUE(RankSums::make(2, CommunicatorChoice::kNccl).ok());
    const auto calls = emulated_gpu::calls();
    while (calls[call].name != "ncclCommInitRankConfig" || calls[call].device != 1) ++call;
  }
  emulated_gpu::reset(options());
  emulated_gpu::inject({.call = call, .error = 0, .hangs = true});
  const auto sums = RankSums::make(2, CommunicatorChoice::kNccl, kShort);
  ASSERT_FALSE(sums.ok());
  EXPECT_EQ(sums.status().message(),
            "rank 1 of 2: NCCL has not ended after 0.3 s, while connecting a rank with the others");
}

// And have more time for it than for a step.
TEST_F(NcclRanksTest, ConnectForAsLongAsItTakes) {
  constexpr Duration kNone{};
  EXPECT_TRUE(make_cuda_ranks(2, kNone, CommunicatorChoice::kNccl, kLong).ok());
  EXPECT_FALSE(make_cuda_ranks(2, kNone, CommunicatorChoice::kNccl, kNone).ok());
}

// So that NCCL has taken its memory before anybody asks what is left.
TEST_F(NcclRanksTest, TakeEveryWayAtOnce) {
  for (const int ranks : {2, 3}) {
    emulated_gpu::reset(options(ranks));
    const auto sums = RankSums::make(ranks, CommunicatorChoice::kNccl);
    ASSERT_TRUE(sums.ok()) << sums.status().message();
    std::map<std::string, int> calls;
    for (const auto& call : emulated_gpu::calls()) ++calls[call.name];
    EXPECT_EQ(calls["ncclAllGather"], ranks);
    EXPECT_EQ(calls["ncclSend"], ranks == 2 ? 0 : ranks * (ranks - 1));
    EXPECT_EQ(calls["ncclRecv"], calls["ncclSend"]);
  }
}

TEST_F(NcclRanksTest, RefuseToBlock) {
  ASSERT_EQ(setenv("NCCL_COMM_BLOCKING", "1", 1), 0);
  EXPECT_THAT(described(2, CommunicatorChoice::kNccl), HasSubstr("NCCL_COMM_BLOCKING=1"));
  ASSERT_EQ(setenv("NCCL_COMM_BLOCKING", "0", 1), 0);
  EXPECT_EQ(described(2, CommunicatorChoice::kNccl), "sums by NCCL 2.28.9");
  unsetenv("NCCL_COMM_BLOCKING");
}

// The second of three GPUs hangs in a sum's kernel, so that none gets through the sum after it; or
// what NCCL does hangs. What the ranks say of it; `hang_at`: whose work does not end.
std::string hung(const std::string& hang_at, const std::function<void()>& mutate = nullptr,
                 bool abort_waits = false) {
  size_t call = 0;  // of the second GPU's, from where the sums begin
  for (const bool hangs : {false, true}) {
    emulated_gpu::Options options;
    options.devices = 3;
    options.peers = 1;
    options.site_frames = 1;
    options.nccl_abort_waits = abort_waits && hangs;
    emulated_gpu::reset(options);
    auto sums = RankSums::make(3, CommunicatorChoice::kNccl, hangs ? kShort : kLong);
    if (!sums.ok()) return sums.status().message();
    const auto calls_of_second = [] {
      std::vector<std::string> names;
      for (const auto& one : emulated_gpu::calls())
        if (one.device == 1) names.push_back(one.name);
      return names;
    };
    (void)sums->add({2, 64});
    const size_t began = calls_of_second().size();
    sums->sums_at_once = 2;
    if (hangs) {
      sums->unsettled = 1;  // the others have to find it
      if (mutate) mutate();
      emulated_gpu::inject({.call = began + call, .error = 0, .hangs = true, .device = 1});
    }
    (void)sums->add({2, 64});
    if (!hangs) {
      const auto calls = calls_of_second();
      const auto first = calls.begin() + static_cast<int64_t>(began);
      const auto found = std::find(first, calls.end(), hang_at);
      EXPECT_NE(found, calls.end());
      call = static_cast<size_t>(found - first);
      continue;
    }
    // All of them, at once from then on; and NCCL has left the GPUs of the others.
    const std::string reason = sums->communicator(0).status().message();
    for (const size_t r : {0, 2}) EXPECT_EQ(sums->statuses[r].message(), reason);
    const TensorView view = matrix_view(nullptr, DType::kF32, 1, 16, 16, DeviceKind::kCuda);
    for (size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(sums->communicator(r).settle().message(), reason);
      EXPECT_EQ(sums->communicator(r).all_reduce(view, view, Epilogue::kStore).message(), reason);
    }
    if (hang_at != "ncclAllGather") emulated_gpu::let_go();
    return reason;
  }
  return "";
}

TEST_F(NcclRanksTest, NameTheRankWhoseGpuHangs) {
  const std::string expected = "rank 1 of 3: its GPU has kept the others waiting for 0.3 s";
  EXPECT_EQ(hung("cudaLaunchKernelExC"), expected);
  // Also while NCCL waits for that GPU (as below).
  EXPECT_EQ(hung("cudaLaunchKernelExC", nullptr, true), expected);
  const auto sites = emulated_gpu::sync_sites();
  int tried = 0;
  for (const auto& site : sites) {
    const std::string where = emulated_gpu::describe_site(site.key);
    if (where.find("RankEvents::") == std::string::npos) continue;
    EXPECT_NE(hung("cudaLaunchKernelExC", [&] { emulated_gpu::switch_off(site.key); }), expected)
        << where;
    ++tried;
  }
  EXPECT_EQ(tried, 2);
}

TEST_F(NcclRanksTest, SayWhyWhileNcclDoesNotLeaveTheGpus) {
  auto gpus = options();
  gpus.nccl_abort_waits = true;
  emulated_gpu::reset(gpus);
  std::vector<std::unique_ptr<CudaDevice>> owned;
  std::vector<CudaDevice*> devices;
  for (const int gpu : {0, 1}) {
    owned.push_back(std::move(*CudaDevice::open(gpu)));
    devices.push_back(owned.back().get());
  }
  const auto ranks = *NcclRanks::make(**system_nccl(), devices, kLong, kLong);
  ranks->fail(1, internal_error("it is lost"));
  const auto aborts = [] {
    const auto calls = emulated_gpu::calls();
    return std::count_if(calls.begin(), calls.end(),
                         [](const auto& call) { return call.name == "ncclCommAbort"; });
  };
  while (aborts() < 2) std::this_thread::yield();
  auto asked = std::async(std::launch::async, [&] { return ranks->check(0); });
  EXPECT_EQ(asked.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  emulated_gpu::let_go();
  EXPECT_EQ(asked.get().message(), "rank 1 of 2: it is lost");
}

TEST_F(NcclRanksTest, SayThatNcclHangs) {
  EXPECT_THAT(hung("ncclAllGather"),
              HasSubstr(" of 3: no GPU has got through an exchange by NCCL in 0.3 s"));
}

// Of a large sum, which requests of small models do not have: each call of the second rank.
TEST_F(NcclRanksTest, NameTheRankOfEachCallOfALargeSumThatFails) {
  std::vector<size_t> tried = {0};  // calls from where the sum begins; the first run fails in none
  for (size_t i = 0; i < tried.size(); ++i) {
    emulated_gpu::reset(options(3));
    auto sums = RankSums::make(3, CommunicatorChoice::kNccl);
    ASSERT_TRUE(sums.ok());
    (void)sums->add({2, 64});
    const auto names = [] {
      std::vector<std::string> all;
      for (const auto& call : emulated_gpu::calls())
        if (call.device == 1) all.push_back(call.name);
      return all;
    };
    const size_t began = names().size();
    if (i > 0) {
      emulated_gpu::inject(
          {.call = began + tried[i], .error = cudaErrorMemoryAllocation, .device = 1});
    }
    (void)sums->add({20, 4096});
    if (i == 0) {
      const auto all = names();
      int questions = 0;  // some; they are asked while the result is waited for, too
      for (size_t k = began; k < all.size(); ++k) {
        if (all[k] == "ncclCommGetAsyncError" ? questions++ < 3 : all[k].starts_with("nccl"))
          tried.push_back(k - began);
      }
      continue;
    }
    SCOPED_TRACE(names()[began + tried[i]]);
    for (const Status& status : sums->statuses)
      EXPECT_THAT(status.message(),
                  ::testing::AllOf(::testing::StartsWith("rank 1 of 3: nccl"),
                                   HasSubstr("bringing the parts of a sum together")));
    EXPECT_EQ(emulated_gpu::report(), "");
  }
  EXPECT_GE(tried.size(), 1u + 3 + 7);  // start, two sends and receives, end, gathering
}

// Nothing is free but what the GPU's pool keeps: a sum that needs more memory gets that.
TEST_F(NcclRanksTest, TakeTheirMemoryFromWhatThePoolKeeps) {
  constexpr RankSums::Shape kShape{256, 4096};
  constexpr size_t kPart = size_t{256} * 4096 * sizeof(float);
  auto gpus = options();
  gpus.memory_bytes = size_t{64} << 20;
  emulated_gpu::reset(gpus);
  auto sums = RankSums::make(2, CommunicatorChoice::kNccl);
  ASSERT_TRUE(sums.ok()) << sums.status().message();
  for (const int gpu : {0, 1}) {
    auto device = std::move(*CudaDevice::open(gpu));
    const auto free = static_cast<size_t>(device->free_bytes());
    ASSERT_GT(free, 4 * kPart);
    // What the test takes itself has room, the parts of all ranks beside it have not.
    ASSERT_TRUE(DeviceMemory::make(*device, device->load(), free - 3 * kPart, "a test").ok());
    ASSERT_EQ(cudaStreamSynchronize(device->load()), cudaSuccess);
  }
  (void)sums->add(kShape);
  for (const Status& status : sums->statuses) EXPECT_TRUE(status.ok()) << status.message();
}

// Every call of the second rank fails once: those of the communicator each time that they are made,
// others once a place. Whoever asked hears of it; after a failure of a step so do all later ones,
// at once; and nothing is left.
constexpr size_t kParts = 4;
class NcclFailures : public NcclRanksTest, public ::testing::WithParamInterface<size_t> {
 protected:
  // What only frees, or has another way, as on one GPU (failures_test.cc).
  static bool may_go_unheard(const std::string& text) {
    for (const char* part :
         {"Free", "Destroy", "Unload", "Abort", "Finalize", "wait_for_all", "~", "cuda_backend.cc",
          "order_after_steps", "free_bytes", "CudaKvSwap::make"})
      if (text.find(part) != std::string::npos) return true;
    return false;
  }

  const RequestFiles files_;
};
INSTANTIATE_TEST_SUITE_P(Part, NcclFailures, ::testing::Range(size_t{0}, kParts));

TEST_P(NcclFailures, OfEachCallAreHeardOfAndLeaveNothing) {
  const auto make = testing::make_ranks(2, kLong, CommunicatorChoice::kNccl);
  std::vector<int32_t> tokens;
  {
    RequestLife life(files_, 2, kLong, make);
    ASSERT_TRUE(life.start().ok() && life.live().ok());
    tokens = life.tokens();
  }
  std::map<std::string, int> seen;
  std::vector<NamedCall> chosen;
  for (const NamedCall& call : named_calls(1)) {
    // Questions come as often as the other rank is late.
    const bool each_time =
        call.name != "cudaStreamQuery" &&
        (call.name.starts_with("nccl") || call.text().find("RankEvents") != std::string::npos);
    if (seen[call.text()]++ < (each_time ? 12 : 1)) chosen.push_back(call);
  }
  // By chance, or a part would have only calls of one kind where they take turns.
  std::shuffle(chosen.begin(), chosen.end(), std::mt19937(1));
  size_t lost = 0;
  auto gpus = options();
  gpus.races_in_kernels = false;
  for (size_t i = GetParam(); i < chosen.size(); i += kParts) {
    const NamedCall& call = chosen[i];
    SCOPED_TRACE("call " + std::to_string(call.number) + " of its name: " + call.text());
    emulated_gpu::reset(gpus);
    // Of no memory there is another way: asking once more when the pool has given back its own.
    emulated_gpu::inject({.call = call.number,
                          .error = call.name.starts_with("cudaMalloc") ? cudaErrorInvalidValue
                                                                       : cudaErrorMemoryAllocation,
                          .device = 1,
                          .name = call.name});
    // Where it is among the calls that were made; their number if it was not.
    const auto place_in = [&](const std::vector<NamedCall>& made) {
      return static_cast<size_t>(std::ranges::find_if(made,
                                                      [&](const NamedCall& c) {
                                                        return c.name == call.name &&
                                                               c.number == call.number;
                                                      }) -
                                 made.begin());
    };
    RequestLife life(files_, 2, kLong, make);
    Status status = life.start();
    const bool started = status.ok();
    if (started) status = life.live();
    const auto until_now = named_calls(1);
    // Not at its end, of which nobody hears.
    const bool in_life = place_in(until_now) < until_now.size();
    if (!in_life) {
      EXPECT_TRUE(status.ok()) << status.message();
    } else if (started && life.health().ok()) {
      EXPECT_TRUE(life.live().ok()) << "as if nothing had been";
      EXPECT_EQ(life.tokens(), tokens);
    } else if (started) {
      ++lost;
      EXPECT_THAT(status.message(), ::testing::StartsWith("rank 1 of 2: "));
      life.do_not_count_memory();  // of a step that failed
      EXPECT_EQ(life.live().message(), status.message()) << "for good";
    }
    life.end();
    const auto made = named_calls(1);
    const size_t k = place_in(made);
    if (k == made.size()) continue;
    if (status.ok() && in_life) {
      const bool of_next = call.name == "cudaSetDevice" && k + 1 < made.size();
      EXPECT_TRUE(may_go_unheard(made[of_next ? k + 1 : k].text())) << "nobody heard of it";
    } else if (in_life) {
      EXPECT_THAT(status.message(), ::testing::AnyOf(HasSubstr("cuda"), HasSubstr("nccl")));
    }
    EXPECT_EQ(emulated_gpu::report(), "");
    if (made[k].site.find("~CudaDevice") == std::string::npos) {
      EXPECT_EQ(emulated_gpu::leaks(), "");
    }
  }
  EXPECT_GT(lost, 5u);
  emulated_gpu::reset();
}

}  // namespace
}  // namespace deltad
