// Preempted sequences in host memory: they go on where they stood, with the tokens that they would
// have had; what does not fit, or cannot be copied, is computed again, and nothing else is.
#include "tests/unit/engine/core_fixture.h"

namespace deltad {
namespace {

using testing::CoreFixture;
using testing::CoreSettings;
using testing::numbers;
using testing::Record;

constexpr int32_t kPrompt = 20, kOutput = 60, kSequences = 3;

class Swap : public ::testing::Test {
 protected:
  // Three sequences that do not fit at once: each needs 5 blocks of 7.
  void start(int32_t host_blocks) {
    CoreSettings settings;
    settings.blocks = 7;
    settings.prefix_cache = false;
    settings.host_blocks = host_blocks;
    f = std::make_unique<CoreFixture>(settings);
    f->model.before_step = [this](const Batch& batch) {
      rows += static_cast<int64_t>(batch.ids.size());
      return Status();
    };
    for (int32_t i = 0; i < kSequences; ++i)
      records.push_back(f->submit(numbers(kPrompt, i), kOutput));
  }
  void expect_tokens(size_t i) {
    CoreFixture alone;
    const auto record = alone.submit(numbers(kPrompt, static_cast<int32_t>(i)), kOutput);
    alone.run();
    EXPECT_EQ(records[i]->end.reason, FinishReason::kLength);
    EXPECT_EQ(records[i]->tokens, record->tokens) << i;
  }
  void step_until_preempted() {
    while (f->core.stats().preemptions == 0) f->step();
  }

  std::unique_ptr<CoreFixture> f;
  std::vector<std::shared_ptr<Record>> records;
  int64_t rows = 0;
};

TEST_F(Swap, NothingIsComputedTwice) {
  start(100);
  f->run();
  const EngineStats stats = f->core.stats();
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_EQ(stats.swapped_out, stats.preemptions);
  EXPECT_EQ(stats.swapped_in, stats.preemptions);
  EXPECT_EQ(rows, kSequences * (kPrompt + kOutput - 1));
  for (size_t i = 0; i < records.size(); ++i) expect_tokens(i);
}

TEST_F(Swap, WhatHasNoRoomIsComputedAgain) {
  start(3);  // less than a sequence has when the first is preempted and another is there
  f->run();
  const EngineStats stats = f->core.stats();
  EXPECT_EQ(stats.kv_host_blocks, 3);
  EXPECT_LT(stats.swapped_out, stats.preemptions);
  EXPECT_EQ(stats.swapped_in, stats.swapped_out);
  EXPECT_GT(rows, kSequences * (kPrompt + kOutput - 1));
  for (size_t i = 0; i < records.size(); ++i) expect_tokens(i);
}

TEST_F(Swap, ACancelledSequenceGivesItsHostBlocksBack) {
  start(100);
  step_until_preempted();
  EXPECT_GT(f->core.stats().kv_host_blocks_used, 0);
  const Sequence* waits = f->core.state().waiting.all().front();
  f->core.cancel(waits->handle);
  EXPECT_EQ(f->core.stats().kv_host_blocks_used, 0);
  f->run();
}

TEST_F(Swap, WhatCannotGoToTheHostIsComputedAgain) {
  start(100);
  f->model.swap.failure_out = internal_error("no copy");
  f->run();
  EXPECT_GT(f->model.swap.blocks_out, 0);
  EXPECT_EQ(f->core.stats().swapped_out, 0u);
  for (size_t i = 0; i < records.size(); ++i) expect_tokens(i);
}

TEST_F(Swap, WhatCannotComeBackIsComputedAgain) {
  start(100);
  f->model.swap.failure_in = internal_error("no copy back");
  f->run();
  const EngineStats stats = f->core.stats();
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_EQ(stats.swapped_in, 0u);
  EXPECT_EQ(f->core.failed_steps_in_a_row(), 0);
  EXPECT_GT(rows, kSequences * (kPrompt + kOutput - 1));
  for (size_t i = 0; i < records.size(); ++i) expect_tokens(i);
}

// Two make room for a more urgent one and come back in one step: the copy of the one fails, and the
// other goes on at once.
TEST_F(Swap, OnlyTheSequenceWhoseBlocksDoNotComeBackIsComputedAgain) {
  CoreSettings settings;
  settings.blocks = 6;
  settings.prefix_cache = false;
  settings.host_blocks = 100;
  f = std::make_unique<CoreFixture>(settings);
  f->model.before_step = [this](const Batch& batch) {
    rows += static_cast<int64_t>(batch.ids.size());
    return Status();
  };
  const auto ask = [&](int32_t prompt, int32_t seed, int32_t tokens, int32_t priority) {
    records.push_back(std::make_shared<Record>());
    Request request = testing::make_request(numbers(prompt, seed), tokens, records.back());
    request.priority = priority;
    return f->submit(std::move(request));
  };
  for (int32_t i = 0; i < 2; ++i) ask(kPrompt, i, kOutput, 1);
  for (int i = 0; i < 5; ++i) f->step();
  const RequestHandle urgent = ask(70, 5, 8, 0);
  for (int i = 0; i < 5 && f->core.stats().swapped_out < 2; ++i) f->step();
  ASSERT_EQ(f->core.stats().swapped_out, 2u);
  f->model.swap.failure_in = internal_error("no copy back");
  f->model.swap.failures_in = 1;
  f->core.cancel(urgent);
  const int64_t before = rows;
  f->step();
  EXPECT_EQ(f->core.stats().waiting, 0);
  EXPECT_EQ(f->core.stats().swapped_in, 1u);
  EXPECT_EQ(rows - before, 1) << "the one that came back";
  f->run();
  for (size_t i = 0; i < 2; ++i) expect_tokens(i);
}

}  // namespace
}  // namespace deltad
