// The engine on the CUDA backend where sequences are preempted. Runs on a card, too.
#include <vector>

#include "engine/engine.h"
#include "tests/cuda/emulated_world.h"
#include "tests/unit/engine/recorder.h"

namespace deltad::testing {
namespace {

class CudaKvSwapping : public EmulatedGpuTest {
 protected:
  // Enough that the one still runs when the other, which begins some steps later, needs its second
  // block.
  static constexpr int32_t kTokens = 14;

  // The tokens of two sequences that begin together.
  std::vector<std::vector<int32_t>> run(const BaseModel& base, const EngineOptions& options,
                                        EngineStats* stats) {
    std::vector<std::shared_ptr<Record>> records;
    auto engine = Engine::make(base, options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    for (int32_t i = 0; engine.ok() && i < 2; ++i) {
      records.push_back(std::make_shared<Record>());
      EXPECT_TRUE((*engine)->submit(make_request(numbers(12, i), kTokens, records.back())).ok());
    }
    if (!engine.ok()) return {};
    (*engine)->shutdown(TimePoint::max());
    *stats = (*engine)->stats();
    std::vector<std::vector<int32_t>> tokens;
    for (const auto& record : records) tokens.push_back(record->tokens);
    return tokens;
  }
};

// Both sequences need two blocks, and there are three.
TEST_F(CudaKvSwapping, TokensAreThoseOfARunWithoutPreemption) {
  auto base = load_on_cuda("llama");
  ASSERT_TRUE(base.ok()) << base.status().message();
  EngineOptions options;
  options.prefix_cache = false;
  options.step_seconds = 1000;
  EngineStats stats;
  options.max_step_rows = 32;
  options.kv_bytes = 1 << 20;
  const auto expected = run(**base, options, &stats);
  EXPECT_EQ(stats.preemptions, 0u);
  options.kv_bytes = options.kv_bytes / stats.kv_blocks * 3;
  const auto swapped = run(**base, options, &stats);
  EXPECT_EQ(stats.kv_host_blocks, 3);
  EXPECT_GT(stats.swapped_out, 0u);
  EXPECT_EQ(stats.swapped_in, stats.preemptions);
  EXPECT_EQ(swapped, expected);
  // A cache whose layers are farther apart than a device copies in one go.
  base->reset();
  emulated_gpu::Options few;
  few.most_pitch = 1 << 10;
  emulated_gpu::reset(few);
  base = load_on_cuda("llama");
  ASSERT_TRUE(base.ok()) << base.status().message();
  EXPECT_EQ(run(**base, options, &stats), expected);
  EXPECT_GT(stats.swapped_out, 0u);
  EXPECT_EQ(stats.swapped_in, stats.preemptions);
  options.kv_host_bytes = 0;
  const auto computed_again = run(**base, options, &stats);
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_EQ(stats.swapped_out, 0u);
  EXPECT_EQ(computed_again, expected);
}

}  // namespace
}  // namespace deltad::testing
