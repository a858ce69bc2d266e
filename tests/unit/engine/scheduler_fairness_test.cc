// Who goes first when there is not enough for all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/engine/scheduling_fixture.h"

namespace deltad {
namespace {

using ::testing::ElementsAre;
using testing::FakeModel;
using ::testing::IsEmpty;
using testing::make_variant;
using testing::Scheduling;

VariantRef heavy_variant(uint32_t number, size_t bytes) {
  auto variant = std::make_shared<Variant>(*make_variant(number));
  variant->bytes = bytes;
  return variant;
}

TEST_F(Scheduling, WhoWasServedLeastForItsWeightIsAdmittedFirst) {
  state.options.max_running = 1;
  Sequence* first = waiting(20, 10, make_variant(1));
  Sequence* second = waiting(20, 10, make_variant(2));
  state.waiting.charge(first->flow, 100);
  const StepPlan plan = plan_step(state);
  ASSERT_EQ(plan.admitted.size(), 1u);
  EXPECT_EQ(plan.admitted[0].sequence, second);
}

TEST_F(Scheduling, OneStepsRowsGoRoundAmongFlows) {
  state.options.max_step_rows = 96;
  const VariantRef flood = make_variant(1);
  Sequence* one = waiting(48, 10, flood);
  Sequence* two = waiting(48, 10, flood);
  Sequence* other = waiting(48, 10, make_variant(2));
  const auto planned = rows(plan_step(state));
  EXPECT_EQ(planned.at(one), 48);
  EXPECT_EQ(planned.at(other), 48) << "the flood has had 48 rows by then";
  EXPECT_EQ(planned.count(two), 0u);
}

TEST_F(Scheduling, TheBaseNeverWaitsForASlot) {
  state.options.max_slots = 1;
  generating(5, make_variant(1));
  Sequence* other = generating(5, make_variant(2));
  Sequence* base = generating(5);
  Sequence* prompt = waiting(20);
  const auto planned = rows(plan_step(state));
  EXPECT_EQ(planned.count(other), 0u);
  EXPECT_EQ(planned.at(base), 1);
  EXPECT_EQ(planned.at(prompt), 20);
}

TEST_F(Scheduling, AnotherDeltaStandsBackByWhatItsBytesCost) {
  state.cost = StepCost(1 << 20);
  for (int i = 0; i < 300; ++i) {  // 1 ms a row, 64 ms for a delta of the base's size
    state.cost.observe(i % 50 + 1, 0, 0.001 * (i % 50 + 1) + 0.064 * (i % 3), i % 3 * (1 << 20));
    state.cost.observe(0, 100, 0.100);
  }
  ASSERT_NEAR(state.cost.rows_for(1 << 20), 64, 2);
  state.options.max_step_rows = 33;
  const VariantRef there = heavy_variant(1, 1 << 20);
  generating(5, there);
  Sequence* other = waiting(32, 10, heavy_variant(2, 1 << 20));
  Sequence* same = waiting(32, 10, there);
  state.waiting.charge(same->flow, 20);
  EXPECT_EQ(rows(plan_step(state)).count(other), 0u) << "20 tokens are less than its delta costs";
  EXPECT_EQ(rows(plan_step(state)).at(same), 32);
  state.waiting.charge(same->flow, 20);  // a delta counts as a step's rows at most
  EXPECT_EQ(rows(plan_step(state)).at(other), 32);
}

TEST_F(Scheduling, ADeltasBytesCountAgainstTheStepsTime) {
  state.cost = StepCost(1 << 20);
  for (int i = 0; i < 300; ++i) {
    state.cost.observe(i % 50 + 1, 0, 0.001 * (i % 50 + 1) + 0.050 * (i % 3), i % 3 * (1 << 20));
    state.cost.observe(0, 100, 0.100);
  }
  generating(5);
  Sequence* prompt = waiting(500, 10, heavy_variant(1, 1 << 20));
  EXPECT_NEAR(rows(plan_step(state)).at(prompt), 48, 16) << "100 ms less 50 for its delta";
}

TEST_F(Scheduling, AFlowAboveItsShareGivesUpWhatItBeganLast) {
  state.options.max_running = 4;
  const VariantRef flood = make_variant(1);
  Sequence* latest = nullptr;
  for (int i = 0; i < 4; ++i) latest = generating(5, flood);
  Sequence* other = waiting(20, 10, make_variant(2));
  state.waiting.charge(latest->flow, 4096);
  const StepPlan plan = plan_step(state);
  EXPECT_THAT(plan.preempted, ElementsAre(latest));
  ASSERT_EQ(plan.admitted.size(), 1u);
  EXPECT_TRUE(plan.admitted[0].took_place);
  EXPECT_EQ(rows(plan).at(other), 20);
  EXPECT_EQ(plan.generating_rows, 3);
}

TEST_F(Scheduling, PlacesDoNotGoBackAndForth) {
  state.options.max_running = 4;
  const VariantRef flood = make_variant(1), other = make_variant(2);
  generating(5, flood);
  generating(5, flood);
  generating(5, other);
  generating(5, other);
  waiting(20, 10, flood);
  waiting(20, 10, other);
  EXPECT_THAT(plan_step(state).preempted, IsEmpty());
}

TEST_F(Scheduling, PlacesAreTakenOnlyFromFlowsThatStayAhead) {
  state.waiting = FairQueue(400);
  state.options.max_running = 2;
  Sequence* flood = generating(5, make_variant(1));
  generating(5, make_variant(1));
  waiting(300, 10, make_variant(2));
  state.waiting.charge(flood->flow, 299);
  EXPECT_THAT(plan_step(state).preempted, IsEmpty()) << "its prompt alone is more than that";
  state.waiting.charge(flood->flow, 1);
  EXPECT_EQ(plan_step(state).preempted.size(), 1u);
}

TEST_F(Scheduling, WhatRunsOfAFlowCountsBeforeItTakesMorePlaces) {
  state.waiting = FairQueue(400);
  state.options.max_running = 3;
  const VariantRef other = make_variant(2);
  Sequence* flood = generating(5, make_variant(1));
  generating(5, make_variant(1));
  running(250, 0, other);
  waiting(250, 10, other);
  state.waiting.charge(flood->flow, 499);
  EXPECT_THAT(plan_step(state).preempted, IsEmpty());
  state.waiting.charge(flood->flow, 1);
  EXPECT_EQ(plan_step(state).preempted.size(), 1u);
}

TEST_F(Scheduling, ASequenceTakesAPlaceOnceInItsLife) {
  state.options.max_running = 2;
  Sequence* flood = generating(5, make_variant(1));
  generating(5, make_variant(1));
  Sequence* other = waiting(20, 10, make_variant(2));
  state.waiting.charge(flood->flow, 9000);
  ASSERT_EQ(plan_step(state).preempted.size(), 1u);
  other->took_place = true;
  EXPECT_THAT(plan_step(state).preempted, IsEmpty());
}

TEST_F(Scheduling, ALaterFlowMayTakeAPlaceThatAnEarlierOneMayNot) {
  state.options.max_running = 2;
  Sequence* flood = generating(5, make_variant(1));
  Sequence* latest = generating(5, make_variant(1));
  Sequence* first = waiting(20, 10, make_variant(2));
  Sequence* second = waiting(20, 10, make_variant(3));
  state.waiting.charge(flood->flow, 9000);
  first->took_place = true;
  const StepPlan plan = plan_step(state);
  EXPECT_THAT(plan.preempted, ElementsAre(latest));
  ASSERT_EQ(plan.admitted.size(), 1u);
  EXPECT_EQ(plan.admitted[0].sequence, second);
}

TEST_F(Scheduling, AFloodGivesBackItsOwnMemoryBeforeThatOfOthers) {
  generating(20, make_variant(1));
  Sequence* flood = generating(32, make_variant(1));
  Sequence* other = generating(32, make_variant(2));  // begun last
  for (Sequence* s : {flood, other}) s->blocks.resize(2);
  state.waiting.charge(flood->flow, 1);
  while (kv.take() >= 0) {
  }
  const StepPlan plan = plan_step(state);
  EXPECT_THAT(plan.preempted, ElementsAre(flood));
  EXPECT_THAT(plan.grown, ElementsAre(other));
}

class LargeCache : public Scheduling {
 protected:
  LargeCache() : Scheduling(256) {}
};

TEST_F(LargeCache, PromptsOfFlowsWithCreditComeBeforeGeneratingRowsOfAFlood) {
  state.options.max_step_rows = 64;
  state.options.step_seconds = 10;
  Sequence* flood = nullptr;
  for (int i = 0; i < 60; ++i) flood = generating(5, make_variant(1));
  for (int i = 0; i < 4; ++i) generating(5, make_variant(2));
  Sequence* prompt = waiting(48, 10, make_variant(2));
  state.waiting.charge(flood->flow, 5000);
  EXPECT_EQ(rows(plan_step(state)).at(prompt), 48) << "its flow has 4,096 tokens less than that";
  state.waiting.charge(prompt->flow, 4996);
  const StepPlan plan = plan_step(state);
  EXPECT_EQ(rows(plan).at(prompt), 16) << "a half each: 32 less 4, and a chunk ends with a block";
  EXPECT_EQ(plan.generating_rows, 48);
}

TEST_F(LargeCache, GeneratingRowsKeepAQuarterWhateverCreditOthersHave) {
  state.options.max_step_rows = 64;
  state.options.step_seconds = 10;
  Sequence* flood = nullptr;
  for (int i = 0; i < 60; ++i) flood = generating(5, make_variant(1));
  waiting(480, 10, make_variant(2));
  state.waiting.charge(flood->flow, 9000);
  const StepPlan plan = plan_step(state);
  EXPECT_EQ(plan.prompt_rows, 48);
  EXPECT_EQ(plan.generating_rows, 16);
}

TEST_F(Scheduling, AnUrgentOneTakesThePlaceOfALessUrgentOne) {
  state.options.max_running = 2;
  generating(5, nullptr, 0);
  Sequence* patient = generating(5, nullptr, 1);
  waiting(20, 10, nullptr, 0);
  waiting(20, 10, nullptr, 2);
  EXPECT_THAT(plan_step(state).preempted, ElementsAre(patient));
}

TEST_F(Scheduling, MemoryIsTakenFromAFlowAboveItsShareOnlyIfItIsEnough) {
  const VariantRef flood = make_variant(1);
  Sequence* old = generating(250, flood);
  Sequence* late = generating(250, flood);
  while (kv.pool().free() > 2) kv.take();
  waiting(200, 10, make_variant(2));  // 13 blocks and one to go on with; the latest has 16
  state.waiting.charge(late->flow, 4096);
  const StepPlan plan = plan_step(state);
  EXPECT_THAT(plan.preempted, ElementsAre(late));
  EXPECT_EQ(plan.admitted.size(), 1u);
  EXPECT_EQ(rows(plan).at(old), 1);
  state.waiting.erase(owned.back().get());
  waiting(600, 10, make_variant(3));
  EXPECT_THAT(plan_step(state).preempted, IsEmpty()) << "even both would not be enough";
}

TEST_F(Scheduling, PromptsOfOthersAreOwedRowsBesideAFloodOfGeneratingOnes) {
  state.options.max_step_rows = 64;
  state.options.step_seconds = 10;
  const VariantRef flood = make_variant(1);
  for (int i = 0; i < 48; ++i) generating(5, flood);
  Sequence* own = waiting(100, 10, flood);
  EXPECT_EQ(rows(plan_step(state)).at(own), 16) << "its own prompts get what is always kept";
  Sequence* other = waiting(100, 10, make_variant(2));
  state.waiting.charge(own->flow, 100);
  const StepPlan plan = plan_step(state);
  EXPECT_EQ(rows(plan).at(other), 32);
  EXPECT_EQ(plan.generating_rows, 32);
}

TEST_F(Scheduling, RowsThatPromptsCannotUseGoToGeneratingOnes) {
  state.options.max_step_rows = 64;
  state.options.step_seconds = 10;
  for (uint32_t v = 0; v < 62; ++v) generating(5, make_variant(v));
  waiting(20, 10, make_variant(40));  // a place for it, but no memory
  while (kv.take() >= 0) {
  }
  state.options.max_running = 63;
  const StepPlan plan = plan_step(state);
  EXPECT_EQ(plan.prompt_rows, 0);
  EXPECT_EQ(plan.generating_rows, 62);
}

TEST_F(Scheduling, WhoseRowsStandStillForTheAgeBoundGoesFirst) {
  state.options.age_seconds = 5;
  state.options.max_step_rows = 32;
  Sequence* patient = waiting(32, 10, make_variant(1), 3);
  Sequence* more = waiting(32, 10, make_variant(2), 3);
  state.now += std::chrono::seconds(4);
  Sequence* urgent = waiting(32, 10, make_variant(3), 0);
  EXPECT_EQ(rows(plan_step(state)).at(urgent), 32);
  state.now += std::chrono::seconds(1);
  const auto planned = rows(plan_step(state));
  EXPECT_EQ(planned.at(patient), 32);
  EXPECT_EQ(planned.count(more), 0u);
}

TEST_F(Scheduling, ASwappedSequenceThatComesBackRenewsTheAgeOfItsFlow) {
  state.options.age_seconds = 5;
  state.options.max_running = 1;
  Sequence* s = waiting(20);
  waiting(20);  // of the same flow
  s->tokens.push_back(1);
  s->swapped = 20;
  state.now += std::chrono::seconds(6);
  const StepPlan plan = plan_step(state);
  EXPECT_EQ(rows(plan).at(s), 1);
  ASSERT_EQ(plan.admitted.size(), 1u);
  state.waiting.erase(s);
  run(s);
  s->computed = s->swapped;
  settle(plan, state);
  EXPECT_EQ(s->flow->since, state.now);
}

TEST_F(Scheduling, WhatIsComputedAgainIsNotPaidForTwice) {
  Sequence* s = waiting(40);
  const double before = s->flow->counter;
  StepPlan plan = plan_step(state);
  state.waiting.erase(s);
  run(s);
  settle(plan, state);
  EXPECT_EQ(s->flow->counter, before + 40);
  s->tokens.push_back(1);  // preempted before its next token, and begun anew
  settle(plan_step(state), state);
  EXPECT_EQ(s->flow->counter, before + 41);
}

}  // namespace
}  // namespace deltad
