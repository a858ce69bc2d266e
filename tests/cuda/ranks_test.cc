// Models on several emulated GPUs: the logits of one GPU and of the CPU, sums that are the same
// bits whatever the size, and what becomes of it when a GPU fails or hangs.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "tests/cuda/ranks_world.h"
#include "tests/unit/parallel/close_rows.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;
using testing::kLong;
using testing::load_all;
using testing::on_gpus;
using testing::Rows;
using testing::run_mixed;

// Their logits beside those of one GPU and of the CPU.
class RanksOnGpus : public testing::RanksTest {
 protected:
  // Beside one GPU the sums' order is all that differs; beside the CPU also how signs are added.
  void compare(const std::string& path, const std::vector<int>& ranks,
               const std::vector<std::string>& variants, int steps) {
    const auto cpu = testing::load_on_ranks(path, 1, "");
    const auto one = on_gpus(path, 1);
    ASSERT_TRUE(cpu && one);
    const Rows of_cpu = run_mixed(*cpu, load_all(*cpu, variants), steps);
    const Rows of_one = run_mixed(*one, load_all(*one, variants), steps);
    const int64_t layers = one->config().layers;
    for (const int n : ranks) {
      SCOPED_TRACE(::testing::Message() << path << " on " << n << " GPUs");
      const auto many = on_gpus(path, n);
      ASSERT_NE(many, nullptr);
      const Rows rows = run_mixed(*many, load_all(*many, variants), steps);
      testing::expect_close(rows, of_one, testing::tolerance(layers, true, false));
      testing::expect_close(rows, of_cpu, testing::tolerance(layers, true, true));
    }
  }
};

TEST_F(RanksOnGpus, GiveTheLogitsOfOneGpuAndOfTheCpu) {
  const auto variants = write_model(testing::even_model());
  compare(folder_.path(), {2, 4, 8}, variants, 3);
}

TEST_F(RanksOnGpus, TakeSizesThatDivideByNothing) {
  ModelConfig config = testing::uneven_model();
  config.head_dim = 8;  // GPUs want a multiple of it
  const auto variants = write_model(config);
  compare(folder_.path(), {3}, variants, 3);
}

TEST_F(RanksOnGpus, RunInAnyOrderOfWork) {
  const auto variants = write_model(testing::even_model());
  Rows expected;
  for (const auto& order :
       {options(), options(emulated_gpu::Order::kEager), options(emulated_gpu::Order::kRandom, 1),
        options(emulated_gpu::Order::kRandom, 2)}) {
    emulated_gpu::reset(order);
    {
      const auto base = on_gpus(folder_.path(), 2);
      ASSERT_NE(base, nullptr);
      const Rows rows = run_mixed(*base, load_all(*base, {"", variants[1]}), 3);
      if (expected.empty()) expected = rows;
      EXPECT_EQ(rows, expected);
    }
    EXPECT_EQ(emulated_gpu::report(), "");
    EXPECT_EQ(emulated_gpu::leaks(), "");
  }
}

// Sums of ranks that have no model.
class CudaSums : public RanksOnGpus {
 protected:
  void start(int ranks) {
    auto made = make_cuda_ranks(ranks, kLong);
    ASSERT_TRUE(made.ok()) << made.status().message();
    ranks_ = std::move(*made);
  }
  static float value(int rank, int64_t row, int64_t column) {
    const int64_t n = (rank * 7919 + row * 104729 + column * 1299709) % 100003;
    return std::ldexp(static_cast<float>(n - 50000), static_cast<int>(n % 40) - 20);
  }
  // Rows [first, end): the parts of all ranks, added to what out held. What each rank then has.
  std::vector<std::vector<float>> add(int64_t first, int64_t end, int64_t columns) {
    std::vector<std::vector<float>> sums(ranks_.backends.size());
    std::vector<Buffer> buffers(2 * sums.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < sums.size(); ++r)
      threads.emplace_back([&, r] {
        const int64_t rows = end - first;
        std::vector<float> part, before;
        for (int64_t row = first; row < end; ++row)
          for (int64_t c = 0; c < columns; ++c) {
            part.push_back(value(static_cast<int>(r), row, c));
            before.push_back(value(99, row, c));
          }
        Backend& backend = *ranks_.backends[r];
        TensorView views[2];
        for (size_t i = 0; i < 2; ++i) {
          Buffer& buffer = buffers[2 * r + i];
          buffer = std::move(*backend.allocate(part.size() * sizeof(float)));
          ASSERT_TRUE(
              backend.upload(buffer.data(), (i == 0 ? part : before).data(), buffer.bytes()).ok());
          views[i] =
              matrix_view(buffer.data(), DType::kF32, rows, columns, columns, DeviceKind::kCuda);
        }
        Communicator& communicator = *ranks_.communicators[r];
        ASSERT_TRUE(communicator.all_reduce(views[1], views[0], Epilogue::kAddResidual).ok());
        ASSERT_TRUE(communicator.settle().ok());
        sums[r].resize(part.size());
        ASSERT_EQ(cudaMemcpy(sums[r].data(), views[1].data, part.size() * sizeof(float),
                             cudaMemcpyDeviceToHost),
                  cudaSuccess);
      });
    for (std::thread& thread : threads) thread.join();
    return sums;
  }

  CudaRanks ranks_;
};

TEST_F(CudaSums, AddInTheOrderOfTheRanksWhateverTheSize) {
  constexpr int64_t kColumns = 2048, kRows = 37;  // a part of 300 KiB: rows are divided
  for (const int n : {2, 3}) {
    start(n);
    const auto many = add(0, kRows, kColumns);
    const auto one = add(5, 6, kColumns);
    std::vector<float> expected;
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t c = 0; c < kColumns; ++c) {
        float sum = value(0, row, c);
        for (int r = 1; r < n; ++r) sum += value(r, row, c);
        expected.push_back(value(99, row, c) + sum);
      }
    for (int r = 0; r < n; ++r) {
      const auto& rows = many[static_cast<size_t>(r)];
      EXPECT_TRUE(rows == expected) << "rank " << r << " of " << n;
      EXPECT_TRUE(std::equal(rows.begin() + 5 * kColumns, rows.begin() + 6 * kColumns,
                             one[static_cast<size_t>(r)].begin()));
    }
    ranks_ = {};
  }
}

// What orders ranks, step by step and in graphs. Not the questions whether a step has ended, and
// the marks in graphs: without those only a GPU that hangs is not found, or not named.
bool orders_ranks(const emulated_gpu::SyncSite& site, const std::string& where) {
  if (site.call == "cudaEventRecordWithFlags") return false;
  for (const char* function : {"wait_while_not_ready", "settle", "begin_step", "slowest"})
    if (where.find(function) != std::string::npos) return false;
  return where.find("CudaCommunicator::") != std::string::npos ||
         where.find("RankGraphs::") != std::string::npos;
}

// Each wait for another rank is needed: switched off in turn, the emulated GPUs find it.
TEST_F(RanksOnGpus, WaitForEachOtherWhereTheyMust) {
  const testing::RequestFiles files;
  const auto live = [&](const std::string& off) {
    emulated_gpu::Options told_apart = options(emulated_gpu::Order::kRandom);
    told_apart.site_frames = 3;  // sums, lists and graphs use the same functions
    emulated_gpu::reset(told_apart);
    if (!off.empty()) emulated_gpu::switch_off(off);
    {
      testing::RequestLife life(files, 2);
      life.do_not_count_memory();
      const Status started = life.start();
      EXPECT_TRUE(started.ok()) << started.message();
      // The second one's steps are graphs.
      for (int lives = 0; lives < 2; ++lives) {
        (void)life.live();
        (void)life.live_on_host();
      }
    }
    return emulated_gpu::report();
  };
  EXPECT_EQ(live(""), "");
  int tried = 0;
  for (const emulated_gpu::SyncSite& site : emulated_gpu::sync_sites()) {
    const std::string where = emulated_gpu::describe_site(site.key);
    if (!orders_ranks(site, where)) continue;
    EXPECT_NE(live(site.key), "") << site.call << " " << where << " is not needed";
    ++tried;
  }
  // Of sums a record and a wait; of lists two records, before a graph and after it a wait; of a
  // capture two each where it forks, where ranks meet and where it ends.
  EXPECT_GE(tried, 10);
  emulated_gpu::reset();
}

TEST_F(RanksOnGpus, ServeRequestsAndAccountForTheirMemory) {
  const testing::RequestFiles files;
  testing::RequestLife life(files, 2);
  ASSERT_TRUE(life.start().ok());
  for (int lives = 0; lives < 2; ++lives) {
    const Status status = life.live();
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

TEST_F(RanksOnGpus, NeedAsManyGpus) {
  const auto made = make_cuda_ranks(9, kLong);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::kUnavailable);
  EXPECT_EQ(made.status().message(), "rank 8 of 9: there is no CUDA device 8: 8 found");
}

// A model on four GPUs, one of which breaks at the first kernel of a step.
class GpuFailure : public RanksOnGpus {
 protected:
  static constexpr int kBad = 2;

  struct Model {
    explicit Model(const std::string& path, Duration patience)
        : base(on_gpus(path, 4, patience)), stepper(*base, 1) {}
    Status step() {
      Batch batch;
      batch.ids = {3, 4};
      batch.groups = {{0, 2, kBaseSlot}};
      batch.spans = {{0, 2, 0, stepper.blocks_of(0)}};
      batch.logit_rows = {1};
      return stepper.forward(batch, {}).status();
    }
    std::unique_ptr<BaseModel> base;
    testing::Stepper stepper;
  };
  static std::vector<std::string> calls_of_bad() {
    std::vector<std::string> names;
    for (const emulated_gpu::CallRecord& call : emulated_gpu::calls())
      if (call.device == kBad) names.push_back(call.name);
    return names;
  }

  void run(emulated_gpu::Failure failure, Duration patience, const std::string& expected) {
    write_model(testing::even_model());
    {
      Model model(folder_.path(), kLong);
      const size_t loaded = calls_of_bad().size();
      ASSERT_TRUE(model.step().ok());
      const auto calls = calls_of_bad();
      failure.call = static_cast<size_t>(std::find(calls.begin() + static_cast<int64_t>(loaded),
                                                   calls.end(), "cudaLaunchKernelExC") -
                                         calls.begin());
      failure.device = kBad;
    }
    emulated_gpu::reset(options());
    emulated_gpu::inject(failure);
    Model model(folder_.path(), patience);
    EXPECT_THAT(model.step().message(), HasSubstr(expected));
    EXPECT_THAT(model.base->parallel->health().message(), HasSubstr(expected));
    EXPECT_THAT(model.step().message(), HasSubstr(expected));  // for good, and at once
    emulated_gpu::let_go();
  }
};

TEST_F(GpuFailure, NamesTheRankWhoseGpuFails) {
  run({.call = 0, .error = cudaErrorIllegalAddress, .sticky = true, .at_execution = true}, kLong,
      "rank 2 of 4: ");
}

TEST_F(GpuFailure, NamesTheRankWhoseGpuHangs) {
  run({.call = 0, .error = 0, .hangs = true}, std::chrono::seconds(1),
      "rank 2 of 4: its GPU has kept the others waiting for 1 s");
}

}  // namespace
}  // namespace deltad
