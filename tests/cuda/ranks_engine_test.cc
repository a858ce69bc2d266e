// The engine on several emulated GPUs: tokens that rank 0's GPU chooses from the logits of all,
// steps that are planned while one runs, sequences that are preempted and come back from the host.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_core.h"
#include "tests/cuda/ranks_world.h"
#include "tests/cuda/sampled_batch.h"
#include "tests/unit/engine/recorder.h"

namespace deltad::testing {
namespace {

class RanksEngine : public RanksTest {
 protected:
  // What rank 0's GPU chooses is what the host chooses from the logits of the same step.
  void compare_sampling(const ModelConfig& config, const std::vector<int>& ranks) {
    const auto variants = write_model(config);
    for (const int n : ranks) {
      SCOPED_TRACE(::testing::Message() << n << " GPUs");
      const auto base = on_gpus(folder_.path(), n);
      ASSERT_NE(base, nullptr);
      const auto loaded = load_all(*base, {variants[2]});  // its head has more tokens
      Stepper stepper(*base, 2);
      SampledBatch step(stepper.blocks_of(0), stepper.blocks_of(1),
                        static_cast<int32_t>(config.vocab));
      const std::vector<const VariantWeights*> slots = {loaded[0]->weights.get()};
      int planned = 0;
      const auto outcomes =
          stepper.forward_sampled(step.batch, slots, step.wanted, [&] { ++planned; });
      ASSERT_TRUE(outcomes.ok()) << outcomes.status().message();
      EXPECT_EQ(planned, 1);
      const auto logits = stepper.forward(step.batch, slots);
      ASSERT_TRUE(logits.ok()) << logits.status().message();
      EXPECT_LT(logits->vocab.front(), logits->vocab.back());
      step.expect_those_of_the_host(*logits, *outcomes);
    }
  }

  // The tokens of two sequences that begin together, greedy and seeded. The engine is stepped here,
  // so that the GPUs' calls are the same in each run.
  std::vector<std::vector<int32_t>> run(const BaseModel& base, int32_t blocks, int32_t host_blocks,
                                        EngineStats* stats) {
    const ModelConfig& config = base.config();
    auto transformer = ParallelTransformer::make(config, *base.parallel, kLong, 32, 64);
    EXPECT_TRUE(transformer.ok()) << transformer.status().message();
    const KvGeometry geometry{config.layers, blocks, 16, (*transformer)->kv_block_bytes(16)};
    EXPECT_TRUE((*transformer)->allocate_kv(blocks, 16).ok());
    std::unique_ptr<KvSwap> swap;
    if (host_blocks > 0) swap = std::move(*(*transformer)->new_kv_swap(host_blocks));
    ParallelRunner runner(std::move(*transformer), *base.parallel, std::move(swap), host_blocks);
    SchedulerOptions options;
    options.max_step_rows = 32;
    options.step_seconds = 1e9;
    EngineCore core(runner, KvCache(Buffer(), geometry, false), options, 64, Clock::real());
    std::vector<std::shared_ptr<Record>> records;
    for (int32_t i = 0; i < 2; ++i) {
      records.push_back(std::make_shared<Record>());
      Request request = make_request(numbers(12, i), 14, records.back());
      request.sampling.temperature = static_cast<float>(i);
      request.sampling.seed = 5;
      core.accept(static_cast<RequestHandle>(i) + 1, std::move(request));
    }
    while (!core.idle()) core.step();
    *stats = core.stats();
    std::vector<std::vector<int32_t>> tokens;
    for (const auto& record : records) {
      EXPECT_TRUE(record->end.status.ok()) << record->end.status.message();
      tokens.push_back(record->tokens);
    }
    return tokens;
  }
};

TEST_F(RanksEngine, SamplesOnRankZerosGpuWhatTheHostWouldChoose) {
  compare_sampling(even_model(), {2, 4, 8});
}

TEST_F(RanksEngine, SamplesFromSharesThatDivideByNothing) {
  ModelConfig config = uneven_model();
  config.head_dim = 8;
  compare_sampling(config, {2, 3});
}

// Both sequences need two blocks.
TEST_F(RanksEngine, PlansAheadAndSwapsPreemptedSequences) {
  ModelConfig config = even_model();
  config.layers = 1;
  write_model(config);
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(::testing::Message() << ranks << " GPUs");
    emulated_gpu::reset(options(emulated_gpu::Order::kRandom, static_cast<uint32_t>(ranks)));
    const auto base = on_gpus(folder_.path(), ranks);
    ASSERT_NE(base, nullptr);
    EngineStats stats;
    const auto expected = run(*base, 4, 0, &stats);
    EXPECT_EQ(stats.preemptions, 0u);
    EXPECT_EQ(stats.steps_planned_ahead, 12u) << "all but the first that has generated rows alone";
    EXPECT_EQ(run(*base, 3, 3, &stats), expected);
    EXPECT_GT(stats.swapped_out, 0u);
    EXPECT_EQ(stats.swapped_in, stats.preemptions);
    EXPECT_EQ(run(*base, 3, 0, &stats), expected);
    EXPECT_GT(stats.preemptions, 0u);
    EXPECT_EQ(stats.swapped_out, 0u);
  }
}

// A call for a copy fails on one of the GPUs: the sequence is computed again on all.
TEST_F(RanksEngine, ComputesAgainWhatOneGpuCannotCopy) {
  ModelConfig config = even_model();
  config.layers = 1;
  write_model(config);
  std::vector<std::vector<int32_t>> expected;
  std::vector<emulated_gpu::Failure> copies;  // of calls of the second GPU that copy blocks
  EngineStats stats;
  {
    const auto base = on_gpus(folder_.path(), 2);
    ASSERT_NE(base, nullptr);
    expected = run(*base, 3, 3, &stats);
    ASSERT_GT(stats.swapped_in, 0u);
    std::map<std::string, size_t> counts;
    for (const emulated_gpu::CallRecord& call : emulated_gpu::calls()) {
      if (call.device != 1) continue;
      const size_t number = counts[call.name]++;
      const std::string site = emulated_gpu::describe_site(call.site);
      if (site.find("CudaKvSwap::order") == std::string::npos) continue;
      copies.push_back(
          {.call = number, .error = cudaErrorMemoryAllocation, .device = 1, .name = call.name});
    }
  }
  ASSERT_GE(copies.size(), 6u);  // out and in: copies, an event, a wait
  uint64_t failed_out = 0, failed_in = 0;
  for (const emulated_gpu::Failure& failure : copies) {
    SCOPED_TRACE(failure.name + " " + std::to_string(failure.call));
    emulated_gpu::reset(options());
    emulated_gpu::inject(failure);
    const auto base = on_gpus(folder_.path(), 2);
    ASSERT_NE(base, nullptr);
    EXPECT_EQ(run(*base, 3, 3, &stats), expected);
    EXPECT_GT(stats.preemptions, 0u);
    failed_out += stats.swapped_out < stats.preemptions;
    failed_in += stats.swapped_in < stats.swapped_out;
    EXPECT_EQ(emulated_gpu::report(), "");
  }
  EXPECT_GT(failed_out, 0u);
  EXPECT_GT(failed_in, 0u);
}

}  // namespace
}  // namespace deltad::testing
