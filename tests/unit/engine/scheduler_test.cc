#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/engine/scheduling_fixture.h"

namespace deltad {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::make_variant;
using testing::Scheduling;

TEST_F(Scheduling, NothingToDoIsAnEmptyPlan) { EXPECT_TRUE(plan_step(state).empty()); }

TEST_F(Scheduling, GeneratingSequencesComeFirstAndPromptsFillTheRest) {
  state.options.max_step_rows = 64;
  state.options.step_seconds = 10;
  Sequence* a = generating(20);
  Sequence* prompt = waiting(500);
  Sequence* b = generating(30);
  const StepPlan plan = plan_step(state);
  EXPECT_EQ(rows(plan).at(a), 1);
  EXPECT_EQ(rows(plan).at(b), 1);
  EXPECT_EQ(rows(plan).at(prompt), 48) << "62 are free; a chunk ends where a block ends";
  EXPECT_EQ(plan.generating_rows, 2);
  EXPECT_EQ(plan.prompt_rows, 48);
}

TEST_F(Scheduling, PlansTheSameTwiceAndChangesNothing) {
  generating(20);
  running(100, 32, make_variant(1));
  waiting(40, 10, make_variant(2));
  const int32_t available = kv.pool().available();
  const StepPlan one = plan_step(state), two = plan_step(state);
  EXPECT_EQ(rows(one), rows(two));
  EXPECT_EQ(one.slots, two.slots);
  EXPECT_EQ(kv.pool().available(), available);
  EXPECT_EQ(state.waiting.size(), 1u);
  EXPECT_EQ(state.running.size(), 2u);
}

TEST_F(Scheduling, PromptsJoinAsFarAsTheTimeAllows) {
  state.options.step_seconds = 0.1;
  for (int i = 0; i < 10; ++i) generating(10);
  Sequence* prompt = waiting(500);
  EXPECT_NEAR(rows(plan_step(state)).at(prompt), 80, 16) << "90 rows fit into what is left";
  state.options.step_seconds = 0.001;
  EXPECT_EQ(rows(plan_step(state)).at(prompt), 16) << "but they always go on";
}

TEST_F(Scheduling, ThereIsNoTimeBoundWhileNobodyGenerates) {
  state.options.step_seconds = 0.001;
  Sequence* prompt = waiting(500);
  EXPECT_EQ(rows(plan_step(state)).at(prompt), 256);
}

TEST_F(Scheduling, PromptsGoByPriorityThenArrival) {
  state.options.max_step_rows = 64;
  Sequence* late = running(100, 0);
  Sequence* early_but_patient = waiting(100, 10, nullptr, 1);
  Sequence* urgent = waiting(40, 10, nullptr, -1);
  const auto planned = rows(plan_step(state));
  EXPECT_EQ(planned.at(urgent), 40);
  EXPECT_EQ(planned.at(late), 16) << "24 are left, and a chunk ends where a block ends";
  EXPECT_EQ(planned.at(early_but_patient), 8) << "the rest is less than a block";
}

TEST_F(Scheduling, MoreGeneratingThanRowsTakeTurns) {
  state.options.max_step_rows = 4;
  for (int i = 0; i < 10; ++i) generating(5);
  std::map<const Sequence*, int> turns;
  for (int step = 0; step < 10; ++step) {
    const StepPlan plan = plan_step(state);
    EXPECT_EQ(plan.rows.size(), 4u);
    for (const PlannedRows& r : plan.rows) ++turns[r.sequence];
    settle(plan, state);
  }
  for (const Sequence* s : state.running) EXPECT_EQ(turns[s], 4);
}

TEST_F(Scheduling, PromptsKeepSomeRowsBesideManyGenerating) {
  state.options.max_step_rows = 8;
  for (int i = 0; i < 20; ++i) generating(5);
  Sequence* prompt = waiting(100);
  const StepPlan plan = plan_step(state);
  EXPECT_EQ(plan.generating_rows, 4);
  EXPECT_EQ(rows(plan).at(prompt), 4);
}

TEST_F(Scheduling, RowsOfAVariantStandTogether) {
  const VariantRef one = make_variant(1), two = make_variant(2);
  for (int i = 0; i < 3; ++i) {
    generating(5, one);
    generating(5);
    generating(5, two);
    waiting(20, 5, one);
  }
  const StepPlan plan = plan_step(state);
  ASSERT_EQ(plan.rows.size(), 12u);
  EXPECT_EQ(plan.slots.size(), 2u);
  int32_t last = -1;
  for (const PlannedRows& r : plan.rows) {
    EXPECT_GE(r.slot, last);
    last = r.slot;
    EXPECT_EQ(r.slot < 0 ? nullptr : plan.slots[static_cast<size_t>(r.slot)],
              r.sequence->variant());
  }
}

TEST_F(Scheduling, MoreVariantsThanSlotsTakeTurns) {
  state.options.max_slots = 2;
  for (uint32_t v = 0; v < 5; ++v) generating(5, make_variant(v));
  Sequence* base = generating(5);
  std::map<const Sequence*, int> turns;
  for (int step = 0; step < 10; ++step) {
    const StepPlan plan = plan_step(state);
    EXPECT_EQ(plan.slots.size(), 2u);
    for (const PlannedRows& r : plan.rows) ++turns[r.sequence];
    settle(plan, state);
  }
  for (const Sequence* s : state.running) EXPECT_EQ(turns[s], s == base ? 10 : 4);
}

TEST_F(Scheduling, APromptGetsItsTurnForASlotToo) {
  state.options.max_slots = 1;
  generating(5, make_variant(1));
  Sequence* prompt = waiting(20, 5, make_variant(2));
  const StepPlan first = plan_step(state);
  ASSERT_EQ(first.admitted.size(), 1u) << "it stands in the line of those that run";
  EXPECT_EQ(rows(first).count(prompt), 0u);
  state.waiting.erase(prompt);
  run(prompt);
  settle(first, state);
  EXPECT_EQ(rows(plan_step(state)).at(prompt), 20);
}

class SmallCache : public Scheduling {
 protected:
  SmallCache() : Scheduling(8) {}
};

TEST_F(SmallCache, AdmitsOnlyWhatFitsWithABlockMore) {
  waiting(64, 100);  // 4 blocks, and one to go on with
  Sequence* second = waiting(64, 100);
  const StepPlan plan = plan_step(state);
  ASSERT_EQ(plan.admitted.size(), 1u);
  EXPECT_EQ(plan.admitted[0].fresh, 4);
  EXPECT_EQ(rows(plan).count(second), 0u);
}

TEST_F(SmallCache, ARequestThatNeedsNoMoreNeedsNoSpareBlock) {
  waiting(64, 1);
  waiting(64, 1);
  EXPECT_EQ(plan_step(state).admitted.size(), 2u);
}

TEST_F(SmallCache, OneMayTakeEverything) {
  waiting(127, 1);
  EXPECT_EQ(plan_step(state).admitted.size(), 1u);
}

TEST_F(SmallCache, NobodyOvertakesOneThatWaitsForMemory) {
  generating(60);
  waiting(100, 10);
  waiting(5, 1);
  EXPECT_THAT(plan_step(state).admitted, IsEmpty());
}

TEST_F(SmallCache, MaxRunningBoundsAdmission) {
  state.options.max_running = 2;
  for (int i = 0; i < 4; ++i) waiting(5, 1);
  EXPECT_EQ(plan_step(state).admitted.size(), 2u);
}

TEST_F(SmallCache, TakesBlocksFromTheLatestOfTheLeastUrgent) {
  Sequence* a = generating(32, nullptr, 0);  // each needs a third block now
  Sequence* patient = generating(32, nullptr, 1);
  Sequence* b = generating(32, nullptr, 0);
  for (Sequence* s : {a, patient, b}) s->blocks.resize(2);
  while (kv.pool().free() > 1) kv.take();
  const StepPlan plan = plan_step(state);
  EXPECT_THAT(plan.preempted, ElementsAre(patient));
  EXPECT_THAT(plan.grown, ElementsAre(a, b));
  EXPECT_EQ(plan.rows.size(), 2u);
  EXPECT_THAT(plan.admitted, IsEmpty());
}

TEST_F(SmallCache, TheOneThatNeedsABlockMayBeTheVictim) {
  Sequence* a = generating(20);
  Sequence* b = generating(32);
  b->blocks.resize(2);
  while (kv.take() >= 0) {
  }
  const StepPlan plan = plan_step(state);
  EXPECT_THAT(plan.preempted, ElementsAre(b));
  EXPECT_EQ(rows(plan).size(), 1u);
  EXPECT_EQ(rows(plan).at(a), 1);
}

TEST_F(SmallCache, WhoWasPreemptedWaitsForRoomToGoOn) {
  generating(20);
  generating(20);  // 4 blocks, 4 are free
  Sequence* s = waiting(30, 60);
  EXPECT_EQ(plan_step(state).admitted.size(), 1u);
  s->preempted = true;  // wants 2 + 3
  EXPECT_THAT(plan_step(state).admitted, IsEmpty());
}

}  // namespace
}  // namespace deltad
