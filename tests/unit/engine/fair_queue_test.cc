#include "engine/fair_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/unit/engine/fake_variant.h"

namespace deltad {
namespace {

using ::testing::ElementsAre;
using testing::make_variant;

class Queueing : public ::testing::Test {
 protected:
  Sequence* make(VariantRef variant, int32_t priority = 0, double weight = 1) {
    Request request;
    request.prompt = {1, 2, 3};
    request.variant = std::move(variant);
    request.priority = priority;
    owned.push_back(std::make_unique<Sequence>(owned.size() + 1, std::move(request), 100));
    queue.join(owned.back().get(), weight);
    return owned.back().get();
  }
  Sequence* waiting(VariantRef variant, int32_t priority = 0, double weight = 1) {
    Sequence* s = make(std::move(variant), priority, weight);
    queue.insert(s, now);
    return s;
  }
  void run(Sequence* s) {
    queue.erase(s);
    s->left_rows = false;
    running.push_back(s);
  }

  FairQueue queue;
  TimePoint now{};
  std::vector<std::unique_ptr<Sequence>> owned;
  std::vector<Sequence*> running;
  const VariantRef a = make_variant(1), b = make_variant(2);
};

TEST_F(Queueing, GoesByClassThenCounterThenArrival) {
  Sequence* first = waiting(a);
  Sequence* second = waiting(b);
  Sequence* urgent = waiting(a, -1);
  Sequence* third = waiting(a);
  EXPECT_THAT(queue.all(), ElementsAre(urgent, first, third, second));
  queue.charge(first->flow, 10);
  EXPECT_THAT(queue.all(), ElementsAre(urgent, second, first, third));
  queue.charge(second->flow, 11);
  EXPECT_THAT(queue.all(), ElementsAre(urgent, first, third, second));
}

// The config may be read anew while sequences wait.
TEST_F(Queueing, AnotherWeightHoldsFromTheNextSequenceOn) {
  Sequence* first = waiting(a);
  Sequence* other = waiting(b);
  queue.charge(other->flow, 4);
  Sequence* second = waiting(a, 0, 4);
  EXPECT_EQ(second->flow, first->flow);
  EXPECT_EQ(first->flow->weight, 4);
  queue.charge(first->flow, 15);
  EXPECT_THAT(queue.all(), ElementsAre(first, second, other));
  queue.charge(first->flow, 2);
  EXPECT_THAT(queue.all(), ElementsAre(other, first, second));
  // Their weights are counted as they are, also when they leave.
  queue.erase(first);
  queue.erase(second);
  queue.erase(other);
  EXPECT_EQ(queue.classes().begin()->second.waiting_weight, 0);
}

TEST_F(Queueing, AHeavierFlowPaysLess) {
  Sequence* heavy = waiting(a, 0, 4);
  Sequence* light = waiting(b);
  queue.charge(heavy->flow, 39);
  queue.charge(light->flow, 10);
  EXPECT_THAT(queue.all(), ElementsAre(heavy, light));
  queue.charge(heavy->flow, 2);
  EXPECT_THAT(queue.all(), ElementsAre(light, heavy));
}

TEST_F(Queueing, ADeltaThatIsNotThereStandsBackByItsCost) {
  Sequence* s = waiting(a);
  Sequence* base = waiting(nullptr);
  queue.set_entry(s->flow, 20);
  EXPECT_THAT(queue.all(), ElementsAre(base, s));
  queue.charge(base->flow, 21);
  EXPECT_THAT(queue.all(), ElementsAre(s, base));
}

TEST_F(Queueing, ShareThatNobodyWantedIsNotSavedUp) {
  Sequence* flood = waiting(a);
  run(waiting(b));
  for (int step = 0; step < 100; ++step) {
    queue.advance(running);
    queue.charge(flood->flow, 50);
  }
  Sequence* back = waiting(b);
  EXPECT_GE(back->flow->counter, 99 * 50) << "it has not kept a credit of 100 steps";
  EXPECT_THAT(queue.all(), ElementsAre(back, flood)) << "but it is the next";
}

TEST_F(Queueing, AFlowThatComesBackHasABoundedCredit) {
  queue = FairQueue(300);
  Sequence* flood = waiting(a);
  for (int step = 0; step < 100; ++step) {
    queue.advance(running);
    queue.charge(flood->flow, 50);
  }
  Sequence* back = waiting(b, 0, 2);
  const double virtual_time = queue.classes().at(0).virtual_time;
  EXPECT_EQ(back->flow->counter, virtual_time - 300) << "tokens per weight, not 100 steps of 50";
  EXPECT_TRUE(back->flow->has_credit());
  EXPECT_FALSE(flood->flow->has_credit());
  queue.charge(back->flow, 600);
  EXPECT_FALSE(back->flow->has_credit());
}

TEST_F(Queueing, WhoUsedItsCreditGetsNoNewOneByLeaving) {
  queue = FairQueue(300);
  waiting(a);
  Sequence* s = waiting(b);
  queue.charge(s->flow, 200);
  queue.erase(s);
  queue.leave(s);
  queue.advance(running);
  EXPECT_EQ(waiting(b)->flow->counter, -100);
}

TEST_F(Queueing, DebtsEndWhenNobodyWaits) {
  Sequence* s = waiting(a);
  run(s);
  run(waiting(b));
  queue.charge(s->flow, 1000);
  queue.advance(running);
  EXPECT_EQ(running[1]->flow->counter, 1000);
}

TEST_F(Queueing, AFlowThatLeavesAndReturnsKeepsWhatItOwes) {
  run(waiting(a));
  Sequence* other = waiting(b);
  queue.charge(running[0]->flow, 500);
  Sequence* gone = running[0];
  running.clear();
  queue.leave(gone);
  queue.advance(running);
  Sequence* back = waiting(a);
  EXPECT_EQ(back->flow->counter, 500);
  EXPECT_THAT(queue.all(), ElementsAre(other, back));
}

TEST_F(Queueing, FlowsAreForgottenOnceTheyOweNothing) {
  Sequence* stays = waiting(b);
  for (uint32_t v = 10; v < 20; ++v) {
    Sequence* s = waiting(make_variant(v));
    queue.charge(s->flow, 5);
    queue.erase(s);
    queue.leave(s);
  }
  EXPECT_EQ(queue.classes().at(0).flows.size(), 11u);
  queue.charge(stays->flow, 5);
  queue.advance(running);
  EXPECT_EQ(queue.classes().at(0).flows.size(), 1u);
  queue.erase(stays);
  queue.leave(stays);
  EXPECT_TRUE(queue.classes().empty());
}

TEST_F(Queueing, AgeIsSinceAPromptOfTheFlowWentOn) {
  Sequence* first = waiting(a);
  now += std::chrono::seconds(1);
  Sequence* second = waiting(b);
  waiting(a);
  EXPECT_EQ(*queue.by_age().begin(), first->flow);
  queue.serve(first->flow, now + std::chrono::seconds(1));
  EXPECT_EQ(*queue.by_age().begin(), second->flow);
}

}  // namespace
}  // namespace deltad
