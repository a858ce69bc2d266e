// Background requests: what they take of a step, and that they take nothing from others.
#include <gtest/gtest.h>

#include "tests/unit/engine/scheduling_fixture.h"

namespace deltad {
namespace {

using testing::make_variant;
using testing::Scheduling;

class Background : public Scheduling {
 protected:
  Background() { state.options.background_share = 0.1; }  // a row takes 1 ms
  Sequence* background(int32_t prompt) { return generating(prompt, nullptr, kBackgroundPriority); }
};
class SmallBackground : public Scheduling {
 protected:
  SmallBackground() : Scheduling(8) {}
};

TEST_F(Background, AStepTakesItsShareLongerAndNoMore) {
  for (int i = 0; i < 30; ++i) generating(10);
  for (int i = 0; i < 10; ++i) background(5);
  const StepPlan plan = plan_step(state);
  EXPECT_GE(plan.generating_rows, 32);
  EXPECT_LE(plan.generating_rows, 33);
  EXPECT_EQ(plan.prompt_rows, 0);
}

TEST_F(Background, PromptsGoOnAFewRowsAtATime) {
  for (int i = 0; i < 30; ++i) generating(10);
  Sequence* prompt = waiting(200, 10, make_variant(1), kBackgroundPriority);
  const StepPlan plan = plan_step(state);
  ASSERT_EQ(plan.admitted.size(), 1u);
  EXPECT_GE(rows(plan)[prompt], 2);
  EXPECT_LE(rows(plan)[prompt], 3);
}

TEST_F(Background, NothingWhereARowIsMoreThanItsShare) {
  generating(10);
  Sequence* b = background(10);
  b->served = state.now;
  EXPECT_EQ(rows(plan_step(state)).count(b), 0u);
  // But not for ever.
  state.now += from_seconds(state.options.age_seconds + 1);
  EXPECT_EQ(rows(plan_step(state))[b], 1);
}

TEST_F(Background, ARowThatTakesMoreThanItsShareComesInSomeSteps) {
  for (int i = 0; i < 2; ++i) generating(10);
  Sequence* b = background(10);
  int with = 0;
  for (int step = 0; step < 100; ++step) {
    const StepPlan plan = plan_step(state);
    with += static_cast<int>(rows(plan).count(b));
    settle(plan, state);  // nothing is committed: the next step is the same
  }
  // Two rows take 2 ms, a tenth of which is a row in five steps.
  EXPECT_GE(with, 15);
  EXPECT_LE(with, 21);
}

TEST_F(Background, AloneItHasTheStepAsFarAsItsTime) {
  state.options.step_seconds = 0.05;
  Sequence* b = background(10);
  Sequence* prompt = waiting(500, 10, nullptr, kBackgroundPriority);
  const StepPlan plan = plan_step(state);
  EXPECT_EQ(rows(plan)[b], 1);
  EXPECT_GE(rows(plan)[prompt], 32);
  EXPECT_LE(rows(plan)[prompt], 50);
}

TEST_F(Background, ItsWaitDoesNotMakeItUrgent) {
  for (int i = 0; i < 10; ++i) generating(10);
  Sequence* prompt = waiting(500, 10, nullptr, kBackgroundPriority);
  Sequence* urgent = waiting(300);
  state.now += from_seconds(state.options.age_seconds + 1);
  for (Sequence* s : state.running) s->served = state.now;
  const StepPlan plan = plan_step(state);
  EXPECT_GE(rows(plan)[urgent], 64);
  EXPECT_LE(rows(plan)[prompt], 12);
}

TEST_F(Background, SlotsAreForOthersFirst) {
  state.options.max_slots = 1;
  state.options.background_share = 1;
  generating(10, make_variant(1), kBackgroundPriority);
  Sequence* other = generating(10, make_variant(2));
  const StepPlan plan = plan_step(state);
  EXPECT_EQ(rows(plan), (std::map<const Sequence*, int32_t>{{other, 1}}));
}

TEST_F(SmallBackground, ItGivesItsMemoryBackFirst) {
  Sequence* b = generating(30, nullptr, kBackgroundPriority);  // two blocks
  Sequence* a = generating(96);                                // six and one more
  a->tokens.resize(97);
  const StepPlan plan = plan_step(state);
  EXPECT_EQ(plan.preempted, std::vector<Sequence*>{b});
  EXPECT_EQ(rows(plan)[a], 1);
}

TEST_F(SmallBackground, AmongThemselvesOneGivesWayToTheOther) {
  Sequence* a = generating(63, nullptr, kBackgroundPriority);
  Sequence* b = generating(63, nullptr, kBackgroundPriority);
  for (Sequence* s : {a, b}) {
    s->tokens.resize(65);
    s->computed = 64;
  }
  const StepPlan plan = plan_step(state);
  EXPECT_EQ(plan.preempted, std::vector<Sequence*>{b});
  EXPECT_EQ(rows(plan)[a], 1);
}

}  // namespace
}  // namespace deltad
