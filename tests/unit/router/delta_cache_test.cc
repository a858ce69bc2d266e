// The cache's state machine: tiers, room, victims, draining, cancelling. The rules that users rely
// on are in tests/contract.
#include "router/delta_cache.h"

#include <gmock/gmock.h>

#include "tests/support/cache_world.h"

namespace deltad {
namespace {

using testing::CacheWorld;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CacheOptions options(int64_t device, int64_t host = 0, int loads = 4) {
  CacheOptions out;
  out.device_bytes = device;
  out.host_bytes = host;
  out.max_loads = loads;
  out.age_bound_seconds = 10;
  return out;
}

// A request that comes, is served and goes.
void serve(CacheWorld& world, VariantId id) {
  if (!world.want(id)) world.loaded(id);
  world.release(id);
}

TEST(DecayedCount, HalvesInAHalfLife) {
  const DecayedCount count(10);
  const TimePoint start{std::chrono::hours(1000)};
  double log_count = kNeverAsked;
  for (int i = 0; i < 8; ++i) log_count = count.add(log_count, start);
  EXPECT_NEAR(count.value(log_count, start), 8, 1e-6);
  EXPECT_NEAR(count.value(log_count, start + std::chrono::seconds(10)), 4, 1e-6);
  log_count = count.add(log_count, start + std::chrono::seconds(20));
  EXPECT_NEAR(count.value(log_count, start + std::chrono::seconds(20)), 3, 1e-6);
  EXPECT_EQ(count.value(kNeverAsked, start), 0);
}

TEST(DecayedCount, ASteadyRateIsFound) {
  const DecayedCount count(10);
  TimePoint now{std::chrono::hours(1)};
  double log_count = kNeverAsked;
  for (int i = 0; i < 2000; ++i) {
    now += std::chrono::milliseconds(100);
    log_count = count.add(log_count, now);
  }
  EXPECT_NEAR(count.rate(log_count, now), 10, 0.1);
}

TEST(DeltaCache, TheLowestRateGoesFirst) {
  CacheWorld world(options(30));
  const VariantId a = world.add("a", 10), b = world.add("b", 10), c = world.add("c", 10),
                  d = world.add("d", 10);
  for (int i = 0; i < 3; ++i) serve(world, a);
  serve(world, b);
  world.clock.advance(1);
  for (int i = 0; i < 2; ++i) serve(world, c);
  world.log.clear();
  serve(world, d);
  EXPECT_THAT(world.log, ElementsAre("free b", "load d"));
}

TEST(DeltaCache, NothingGoesIfThatMakesNoRoom) {
  CacheWorld world(options(30));
  const VariantId busy = world.add("busy", 20), idle = world.add("idle", 10),
                  big = world.add("big", 20);
  serve(world, idle);
  EXPECT_FALSE(world.want(busy));
  world.loaded(busy);
  EXPECT_FALSE(world.want(big));
  EXPECT_TRUE(world.on_device(idle));
  EXPECT_EQ(world.loading(), 0);
  world.release(busy);  // the rates are equal: the one used longer ago and what is still needed
  EXPECT_EQ(world.loading(), 1);
}

TEST(DeltaCache, ASmallOneGoesAheadOfOneThatFindsNoRoom) {
  CacheWorld world(options(30));
  const VariantId busy = world.add("busy", 20), big = world.add("big", 20),
                  small = world.add("small", 10);
  world.want(busy);
  world.loaded(busy);
  world.want(big);
  world.want(small);
  EXPECT_THAT(world.log, ElementsAre("load busy", "load small"));
}

TEST(DeltaCache, WhatRunsOverTheSlotsWaits) {
  CacheWorld world(options(30, 0, 1));
  const VariantId a = world.add("a", 10), b = world.add("b", 10);
  world.want(a);
  world.want(b);
  EXPECT_THAT(world.log, ElementsAre("load a"));
  world.loaded(a);
  EXPECT_THAT(world.log, ElementsAre("load a", "load b"));
}

TEST(DeltaCache, OneLoadAtATimeForADigest) {
  CacheWorld world(options(30));
  const VariantId a = world.add("a", 10, "same"), b = world.add("b", 10, "same");
  world.want(a);
  world.want(b);
  EXPECT_EQ(world.loading(), 1);
  world.loaded(a);
  EXPECT_EQ(world.loading(), 1);
}

TEST(DeltaCache, ALoadThatNobodyWantsIsCancelledAndItsBytesComeBack) {
  CacheWorld world(options(10));
  const VariantId a = world.add("a", 10), b = world.add("b", 10);
  world.want(a);
  world.leave(a);
  EXPECT_THAT(world.log, ElementsAre("load a", "cancel a"));
  world.want(b);
  EXPECT_EQ(world.cache.tier(Tier::kDevice).used, 10);  // not before the loader let go
  world.end_load(a, cancelled("stopped"), 0);
  EXPECT_THAT(world.log, ElementsAre("load a", "cancel a", "load b"));
  EXPECT_TRUE(world.cache.info(a).error.ok());
}

TEST(DeltaCache, ACancelledLoadThatIsWantedAgainStartsAgain) {
  CacheWorld world(options(10));
  const VariantId a = world.add("a", 10);
  world.want(a);
  world.leave(a);
  world.want(a);
  world.end_load(a, cancelled("stopped"), 0);
  EXPECT_THAT(world.log, ElementsAre("load a", "cancel a", "load a"));
  world.loaded(a);
  EXPECT_EQ(world.items[a].in_flight, 1);
}

TEST(DeltaCache, ALoadThatTookLessGivesTheRestBack) {
  CacheWorld world(options(30));
  const VariantId a = world.add("a", 20);
  world.want(a);
  EXPECT_EQ(world.cache.tier(Tier::kDevice).loading, 20);
  world.end_load(a, Status(), 12);
  EXPECT_EQ(world.cache.tier(Tier::kDevice).used, 12);
  EXPECT_EQ(world.cache.tier(Tier::kDevice).loading, 0);
}

TEST(DeltaCache, WhatCanNeverFitIsSaidWithItsBytes) {
  CacheWorld world(options(30));
  const VariantId a = world.add("a", 31), b = world.add("b", 10);
  world.want(a);
  EXPECT_EQ(world.items[a].failed, 1);
  EXPECT_THAT(world.items[a].error.message(), HasSubstr("'a' needs 31 bytes"));
  EXPECT_THAT(world.items[a].error.message(), HasSubstr("the budget is 30"));
  world.want(a);  // its size is known now
  EXPECT_THAT(world.last.message(), HasSubstr("can never fit"));
  EXPECT_THAT(world.log, IsEmpty());
  EXPECT_THAT(world.cache.info(a).error.message(), HasSubstr("can never fit"));
  EXPECT_TRUE(world.cache.info(b).error.ok());
  serve(world, b);
}

TEST(DeltaCache, WhatWasMeasuredBeforeNobodyAsksFor) {
  CacheWorld world(options(30));
  const VariantId a = world.add("a", 31), b = world.add("b", 10);
  world.cache.measured_before(a, 31, "a");
  EXPECT_THAT(world.cache.info(a).error.message(), HasSubstr("can never fit"));
  EXPECT_EQ(world.cache.pin(a).code(), Code::kConflict);
  EXPECT_FALSE(world.cache.info(a).pinned);
  world.cache.measured_before(b, 10, "b");
  ASSERT_FALSE(*world.cache.want(b));
  const auto actions = world.cache.take_actions();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].kind, CacheAction::Kind::kLoad);
}

TEST(DeltaCache, APinThatTurnsOutNotToFitIsLetGoAndSaysWhy) {
  CacheWorld world(options(30));
  const VariantId a = world.add("a", 20), b = world.add("b", 20);
  ASSERT_TRUE(world.cache.pin(a).ok());
  world.run();
  world.loaded(a);
  ASSERT_TRUE(world.cache.pin(b).ok());  // its size is not known
  world.want(b);
  EXPECT_FALSE(world.cache.info(b).pinned);
  EXPECT_EQ(world.items[b].failed, 1);
  EXPECT_THAT(world.cache.info(b).error.message(), HasSubstr("20 are pinned by others"));
  world.cache.unpin(a);
  EXPECT_TRUE(world.cache.info(b).error.ok());
  serve(world, b);
}

// A file overwritten in place: nobody is told, but those who wait get the new one.
TEST(DeltaCache, AFileThatIsAnotherThanWasMeasuredIsMeasuredAnewForThoseWhoWait) {
  CacheWorld world(options(30));
  const VariantId a = world.add("a", 10), b = world.add("b", 10);
  world.want(a);
  world.want(a);
  world.outdated(a, 25);
  EXPECT_THAT(world.log, ElementsAre("load a", "load a"));
  EXPECT_EQ(world.cache.tier(Tier::kDevice).used, 25);
  EXPECT_EQ(world.items[a].failed, 0);
  world.want(b);
  EXPECT_FALSE(world.items[b].loading);  // no room beside it
  world.loaded(a);
  EXPECT_EQ(world.items[a].in_flight, 2);
  EXPECT_EQ(world.cache.stats().load_failures, 0u);
}

TEST(DeltaCache, AnOutdatedLoadThatNobodyWaitsForIsNotBegunAnew) {
  CacheWorld world(options(30));
  const VariantId a = world.add("a", 10);
  world.want(a);
  world.leave(a);
  world.outdated(a, 20);
  EXPECT_EQ(world.loading(), 0);
  EXPECT_EQ(world.cache.tier(Tier::kDevice).used, 0);
  EXPECT_EQ(world.where(a), Residency::kDisk);
}

TEST(DeltaCache, PinsAreKeptAndCounted) {
  CacheWorld world(options(30));
  const VariantId a = world.add("a", 20), b = world.add("b", 20), c = world.add("c", 10);
  ASSERT_TRUE(world.cache.pin(a).ok());
  world.run();
  world.loaded(a);
  serve(world, c);
  world.want(b);
  EXPECT_EQ(world.items[b].failed, 1);
  EXPECT_THAT(world.items[b].error.message(), HasSubstr("of the budget of 30, 20 are pinned"));
  EXPECT_EQ(world.cache.pin(b).code(), Code::kConflict);
  EXPECT_EQ(world.cache.set_budget(Tier::kDevice, 10).code(), Code::kResourceExhausted);
  EXPECT_EQ(world.cache.evict(a).code(), Code::kConflict);
  world.cache.unpin(a);
  serve(world, b);
  EXPECT_FALSE(world.on_device(a));
}

TEST(DeltaCache, APinnedVariantIsTriedAgainByItself) {
  CacheWorld world(options(30));
  const VariantId a = world.add("a", 10);
  ASSERT_TRUE(world.cache.pin(a).ok());
  world.run();
  world.end_load(a, unavailable("broken"), 0);
  EXPECT_EQ(world.cache.wake_time(), world.clock.now() + std::chrono::seconds(1));
  world.tick(1);
  EXPECT_THAT(world.log, ElementsAre("load a", "load a"));
}

TEST(DeltaCache, ALoweredBudgetLetsTheLowestDrain) {
  CacheWorld world(options(30));
  const VariantId a = world.add("a", 10), b = world.add("b", 10), c = world.add("c", 10);
  for (const VariantId id : {a, b, c}) {
    world.want(id);
    world.loaded(id);
    world.want(id);
    world.clock.advance(1);
  }
  world.release(c);
  world.release(c);
  world.set_budget(Tier::kDevice, 15);
  EXPECT_FALSE(world.on_device(c));  // idle: at once
  EXPECT_TRUE(world.cache.info(a).draining);
  EXPECT_FALSE(world.cache.info(b).draining);
  EXPECT_FALSE(world.want(a));
  world.release(a);
  world.release(a);
  EXPECT_EQ(world.cache.tier(Tier::kDevice).used, 10);
  world.set_budget(Tier::kDevice, 20);
  world.loaded(a);  // who waited meanwhile
  EXPECT_EQ(world.items[a].in_flight, 1);
}

TEST(DeltaCache, ARetiredOneGoesWithItsLastRequest) {
  CacheWorld world(options(30));
  const VariantId a = world.add("a", 10), idle = world.add("idle", 10);
  serve(world, idle);
  world.want(a);
  world.loaded(a);
  world.cache.retire(a);
  world.cache.retire(idle);
  world.run();
  EXPECT_FALSE(world.cache.known(idle));
  EXPECT_EQ(world.used(Tier::kDevice), 10);
  world.release(a);
  EXPECT_FALSE(world.cache.known(a));
  EXPECT_EQ(world.cache.tier(Tier::kDevice).used, 0);
}

TEST(DeltaCache, ASuccessorTakesPinAndPopularity) {
  CacheWorld world(options(30));
  const VariantId old = world.add("a", 10), fresh = world.add("a", 10, "new");
  ASSERT_TRUE(world.cache.pin(old).ok());
  world.run();
  world.loaded(old);
  world.want(old);
  const double priority = world.cache.info(old).priority;
  world.cache.succeed(old, fresh);
  world.cache.retire(old);
  world.run();
  world.loaded(fresh);
  EXPECT_TRUE(world.cache.info(fresh).pinned);
  EXPECT_EQ(world.cache.info(fresh).priority, priority);
  world.release(old);
  EXPECT_FALSE(world.cache.known(old));
}

TEST(DeltaCache, APrefetchGoesOnWhenAWaiterLeaves) {
  CacheWorld world(options(30));
  const VariantId a = world.add("a", 10);
  ASSERT_TRUE(world.cache.prefetch(a).ok());
  world.run();
  world.want(a);
  world.leave(a);
  EXPECT_THAT(world.log, ElementsAre("load a"));
  world.loaded(a);
  EXPECT_TRUE(world.on_device(a));
}

TEST(DeltaCache, AfterAFailedLoadTheFileIsMeasuredAgain) {
  CacheWorld world(options(30));
  const VariantId a = world.add("a", 10);
  world.want(a);
  world.end_load(a, unavailable("it changed while it was read"), 0);
  world.items[a].bytes = 20;
  world.tick(1);
  world.want(a);
  EXPECT_EQ(world.used(Tier::kDevice), 20);
}

TEST(DeltaCacheTiers, GivenUpOnTheDeviceItStaysOnTheHost) {
  CacheWorld world(options(10, 30));
  const VariantId a = world.add("a", 10), b = world.add("b", 10);
  serve(world, a);
  world.want(b);
  EXPECT_THAT(world.log, ElementsAre("load a", "demote a"));
  world.demoted(a);
  EXPECT_THAT(world.log, ElementsAre("load a", "demote a", "free a", "load b"));
  EXPECT_EQ(world.where(a), Residency::kHost);
  world.loaded(b);
  world.release(b);
  world.log.clear();
  // Back from the host, not from the disk; a second demotion of the same needs no copy.
  world.want(a);
  world.demoted(b);
  world.loaded(a);
  world.release(a);
  EXPECT_THAT(world.log, ElementsAre("demote b", "free b", "promote a"));
  world.log.clear();
  serve(world, b);
  EXPECT_THAT(world.log, ElementsAre("free a", "promote b"));
}

// Two variants that do not fit on the device together; a lies on the host, b was used last.
struct CopyOnTheHost : CacheWorld {
  explicit CopyOnTheHost(const CacheOptions& options) : CacheWorld(options) {
    a = add("a", 10);
    b = add("b", 10);
    serve(*this, a);
    want(b);
    demoted(a);
    loaded(b);
    release(b);
    log.clear();
  }
  VariantId a, b;
};

TEST(DeltaCacheTiers, ACopyOfAnotherVersionThanTheDiskHasIsDropped) {
  CopyOnTheHost world(options(10, 30));
  world.set_budget(Tier::kDevice, 20);
  world.want(world.a);
  world.copy_outdated(world.a, 8);
  // Measured anew only once the copy is gone, whose bytes count until then.
  EXPECT_THAT(world.log, ElementsAre("promote a", "free host a", "load a"));
  EXPECT_EQ(world.used(Tier::kHost), 0);
  world.loaded(world.a);
  EXPECT_TRUE(world.on_device(world.a));
  EXPECT_EQ(world.items[world.a].in_flight, 1);
  EXPECT_EQ(world.cache.info(world.a).bytes, 8);
}

TEST(DeltaCacheTiers, ACopyBackDoesNotQueueBehindLoads) {
  CopyOnTheHost world(options(10, 30, 1));
  world.set_budget(Tier::kDevice, 40);
  const VariantId c = world.add("c", 10), d = world.add("d", 10);
  world.want(c);
  world.want(d);  // one load at once
  world.want(world.a);
  EXPECT_THAT(world.log, ElementsAre("load c", "promote a"));
  world.loaded(world.a);
  EXPECT_TRUE(world.on_device(world.a));
  EXPECT_EQ(world.loading(), 1);
  world.loaded(c);
  EXPECT_THAT(world.log, ElementsAre("load c", "promote a", "load d"));
}

TEST(DeltaCacheTiers, NobodyWaitsAnyMoreForWhatIsOutdated) {
  CopyOnTheHost world(options(10, 30));
  world.set_budget(Tier::kDevice, 20);
  world.want(world.a);
  world.leave(world.a);
  world.copy_outdated(world.a, 8);
  EXPECT_THAT(world.log, ElementsAre("promote a", "cancel a", "free host a"));
  EXPECT_EQ(world.where(world.a), Residency::kDisk);
  EXPECT_TRUE(world.want(world.b));
}

TEST(DeltaCacheTiers, AHostThatLoadsDoNotReachWaitsForTheDevice) {
  CacheOptions only_from_device = options(10, 30);
  only_from_device.loads_to_host = false;
  CacheWorld world(only_from_device);
  const VariantId a = world.add("a", 10), b = world.add("b", 10);
  world.want(a);
  world.loaded(a);
  world.want(b);  // no room while a is in use
  EXPECT_THAT(world.log, ElementsAre("load a"));
  world.release(a);
  world.demoted(a);
  EXPECT_THAT(world.log, ElementsAre("load a", "demote a", "free a", "load b"));
}

TEST(DeltaCacheTiers, ACopyThatFailsCostsNoMoreThanTheCopy) {
  CacheWorld world(options(10, 30));
  const VariantId a = world.add("a", 10), b = world.add("b", 10);
  serve(world, a);
  world.want(b);
  world.demoted(a, false);
  EXPECT_THAT(world.log, ElementsAre("load a", "demote a", "free a", "load b"));
  EXPECT_EQ(world.where(a), Residency::kDisk);
  EXPECT_EQ(world.used(Tier::kHost), 0);
}

TEST(DeltaCacheTiers, ARequestCallsBackWhatIsOnItsWayOut) {
  CacheWorld world(options(10, 30));
  const VariantId a = world.add("a", 10), b = world.add("b", 10);
  serve(world, a);
  world.want(b);
  EXPECT_TRUE(world.want(a));
  world.demoted(a);
  EXPECT_TRUE(world.on_device(a));
  EXPECT_EQ(world.loading(), 1);  // b comes as far as the host meanwhile
  world.loaded(b);
  world.release(a);
  world.loaded(b);
  EXPECT_THAT(world.log, ElementsAre("load a", "demote a", "load b", "free a", "promote b"));
}

TEST(DeltaCacheTiers, TheHostGivesUpCopiesOfWhatIsOnTheDeviceFirst) {
  CacheWorld world(options(20, 20));
  const VariantId a = world.add("a", 10), b = world.add("b", 10), c = world.add("c", 10),
                  d = world.add("d", 10);
  for (const VariantId id : {a, b, c}) {
    if (!world.want(id)) {
      for (auto& [victim, item] : world.items)
        if (item.copying) world.demoted(victim);
      world.loaded(id);
    }
    world.release(id);
    world.clock.advance(1);
  }
  EXPECT_EQ(world.where(a), Residency::kHost);
  serve(world, b);
  serve(world, b);
  world.want(a);  // c goes out to the host, a comes in and keeps its copy there
  world.demoted(c);
  world.loaded(a);
  world.release(a);
  world.log.clear();
  world.want(d);  // someone must go out: the host drops the copy of a, not c
  EXPECT_EQ(world.where(c), Residency::kHost);
}

TEST(DeltaCacheTiers, WhatIsEvictedOnItsWayLeavesNothing) {
  CacheWorld world(options(10, 30));
  const VariantId out = world.add("out", 10), other = world.add("other", 10);
  serve(world, out);
  world.want(other);
  ASSERT_TRUE(world.cache.evict(out).ok());
  world.run();
  world.demoted(out);
  EXPECT_THAT(world.log,
              ElementsAre("load out", "demote out", "free out", "free host out", "load other"));
  for (const bool in_time : {true, false}) {
    CopyOnTheHost back(options(10, 30));
    back.set_budget(Tier::kDevice, 20);
    ASSERT_TRUE(back.cache.prefetch(back.a).ok());
    back.run();
    ASSERT_TRUE(back.cache.evict(back.a).ok());
    back.run();
    if (in_time)
      back.end_load(back.a, cancelled("stopped"), 0);
    else
      back.loaded(back.a);
    EXPECT_EQ(back.where(back.a), Residency::kDisk);
    EXPECT_EQ(back.used(Tier::kHost), 0);
  }
  // But not what somebody asks for by then.
  CopyOnTheHost again(options(10, 30));
  again.set_budget(Tier::kDevice, 20);
  ASSERT_TRUE(again.cache.prefetch(again.a).ok());
  again.run();
  ASSERT_TRUE(again.cache.evict(again.a).ok());
  again.run();
  again.want(again.a);
  again.end_load(again.a, cancelled("stopped"), 0);
  EXPECT_THAT(again.log, ElementsAre("promote a", "cancel a", "promote a"));
}

TEST(DeltaCacheTiers, OnlyCopiesThatSucceedAreCounted) {
  CopyOnTheHost world(options(10, 30));
  EXPECT_EQ(world.cache.stats().demotions, 1u);
  world.want(world.a);
  world.demoted(world.b, false);
  EXPECT_EQ(world.cache.stats().demotions, 1u);
  world.end_load(world.a, internal_error("a copy"), 0);
  EXPECT_EQ(world.cache.stats().promotions, 0u);
  world.tick(2);
  world.want(world.a);
  world.loaded(world.a);
  EXPECT_EQ(world.cache.stats().promotions, 1u);
}

// A hot one is spared while a cold one is in use, but not where the host has it: it is back at
// once.
TEST(DeltaCacheTiers, NobodyWaitsToSpareWhatTheHostKeeps) {
  for (const int64_t host : {0, 30}) {
    CacheWorld world(options(20, host));
    const VariantId hot = world.add("hot", 10), cold = world.add("cold", 10),
                    x = world.add("x", 10);
    world.want(hot);
    world.clock.advance(1);  // what a load takes
    world.loaded(hot);
    world.release(hot);
    for (int i = 0; i < 8; ++i) serve(world, hot);
    world.want(cold);
    world.clock.advance(1);
    world.loaded(cold);
    world.log.clear();
    world.want(x);
    EXPECT_EQ(world.log,
              host == 0 ? std::vector<std::string>{} : std::vector<std::string>{"demote hot"});
  }
}

TEST(DeltaCache, AThousandVariantsCostLittle) {
  CacheWorld world(options(100));
  std::vector<VariantId> ids;
  for (int i = 0; i < 1000; ++i) ids.push_back(world.add("v" + std::to_string(i), 10));
  for (int round = 0; round < 3; ++round)
    for (const VariantId id : ids) serve(world, id);
  EXPECT_EQ(world.cache.stats().loads, 3000u);
  EXPECT_EQ(world.used(Tier::kDevice), 100);
}

}  // namespace
}  // namespace deltad
