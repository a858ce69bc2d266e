// Steps planned while the one before runs on a device: what comes out is the same, and what ends,
// comes or fails meanwhile is seen to.
#include <gmock/gmock.h>

#include "tests/unit/engine/core_fixture.h"

namespace deltad {
namespace {

using testing::CoreFixture;
using testing::CoreSettings;
using ::testing::HasSubstr;
using testing::make_variant;
using testing::numbers;
using testing::Record;

CoreSettings on_device() {
  CoreSettings settings;
  settings.device_top = 32;
  return settings;
}

std::vector<int32_t> alone(int32_t seed, int32_t max_tokens, const VariantRef& variant = nullptr) {
  CoreFixture f;
  const auto record = f.submit(numbers(20, seed), max_tokens, variant);
  f.run();
  return record->tokens;
}

TEST(PlannedAhead, AreStepsOfSequencesThatGoOn) {
  CoreFixture f(on_device());
  const auto first = f.submit(numbers(20), 30), second = f.submit(numbers(20, 1), 30);
  f.run();
  const EngineStats stats = f.core.stats();
  EXPECT_EQ(stats.steps, 30u);
  // The prompts' step plans nothing ahead, and the one after it is planned when it begins.
  EXPECT_EQ(stats.steps_planned_ahead, 28u);
  EXPECT_EQ(first->tokens, alone(0, 30));
  EXPECT_EQ(second->tokens, alone(1, 30));
}

TEST(PlannedAhead, GoOnWithoutWhatHasEnded) {
  CoreFixture f(on_device());
  std::vector<std::shared_ptr<Record>> records;
  for (int32_t i = 0; i < 4; ++i) records.push_back(f.submit(numbers(20, i), 5 + 10 * i));
  f.run();
  EXPECT_EQ(f.core.stats().steps, 35u);
  EXPECT_EQ(f.core.stats().steps_planned_ahead, 33u);
  for (int32_t i = 0; i < 4; ++i)
    EXPECT_EQ(records[static_cast<size_t>(i)]->tokens, alone(i, 5 + 10 * i));
}

TEST(PlannedAhead, AVariantsLastSequenceTakesItsSlotAlong) {
  CoreFixture f(on_device());
  const auto base = f.submit(numbers(20), 30);
  const auto other = f.submit(numbers(20, 1), 10, make_variant(1));
  const auto kept = make_variant(2);
  const auto third = f.submit(numbers(20, 2), 30, kept);
  while (other->finished == 0) f.step();
  f.step();
  EXPECT_EQ(f.model.last_slots, std::vector<const VariantWeights*>{kept->weights.get()});
  f.run();
  EXPECT_EQ(base->tokens, alone(0, 30));
  EXPECT_EQ(other->tokens, alone(1, 10, make_variant(1)));
  EXPECT_EQ(third->tokens, alone(2, 30, kept));
}

TEST(PlannedAhead, WhatComesOrIsCancelledIsInTheNextStep) {
  CoreFixture f(on_device());
  const auto first = f.submit(numbers(20), 30);
  for (int i = 0; i < 5; ++i) f.step();
  const auto second = f.submit(numbers(20, 1), 30);
  f.step();
  EXPECT_EQ(f.model.last_batch.ids.size(), 21u);
  for (int i = 0; i < 5; ++i) f.step();
  f.core.cancel(2);
  f.step();
  EXPECT_EQ(f.model.last_batch.ids.size(), 1u);
  f.run();
  EXPECT_EQ(first->tokens, alone(0, 30));
  EXPECT_EQ(second->end.reason, FinishReason::kCancelled);
}

// There is a place for one: who waits gets it in the step after the first one's last.
TEST(PlannedAhead, APlaceThatBecomesFreeIsTakenAtOnce) {
  CoreSettings settings = on_device();
  settings.scheduler.max_running = 1;
  CoreFixture f(settings);
  const auto first = f.submit(numbers(20), 10), second = f.submit(numbers(20, 1), 10);
  f.run();
  EXPECT_EQ(f.core.stats().steps, 20u);
  EXPECT_EQ(second->tokens, alone(1, 10));
}

TEST(PlannedAhead, AreGivenUpWithAStepThatFails) {
  CoreFixture f(on_device());
  const auto first = f.submit(numbers(20), 30), second = f.submit(numbers(20, 1), 30);
  for (int i = 0; i < 5; ++i) f.step();
  f.model.late_failure = internal_error("the device stumbled");
  f.step();
  EXPECT_THAT(first->end.status.message(), HasSubstr("stumbled"));
  EXPECT_EQ(second->end.reason, FinishReason::kError);
  EXPECT_TRUE(f.core.idle());
  f.model.late_failure = {};
  const auto later = f.submit(numbers(20, 2), 10);
  f.run();
  EXPECT_EQ(later->tokens, alone(2, 10));
}

}  // namespace
}  // namespace deltad
