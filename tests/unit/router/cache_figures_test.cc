// What the cache counts of itself: hits and misses, evictions by reason, bytes being loaded, and
// what those that wait are waiting for.
#include <gtest/gtest.h>

#include "tests/support/cache_world.h"

namespace deltad {
namespace {

using testing::CacheWorld;

CacheOptions options(int64_t device, int64_t host = 0, int loads = 4) {
  CacheOptions out;
  out.device_bytes = device;
  out.host_bytes = host;
  out.max_loads = loads;
  return out;
}

void serve(CacheWorld& world, VariantId id) {
  if (!world.want(id)) world.loaded(id);
  world.release(id);
}

TEST(CacheFigures, HitsMissesAndRefusals) {
  CacheWorld world(options(10));
  const VariantId a = world.add("a", 10), big = world.add("big", 11);
  world.want(a);
  world.want(a);
  world.loaded(a);
  world.want(a);
  world.want(big);  // a miss: its size is not known yet
  world.want(big);
  const CacheStats& stats = world.cache.stats();
  EXPECT_EQ(stats.requests, 5u);
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.misses, 3u);
}

TEST(CacheFigures, EvictionsByReason) {
  CacheWorld world(options(20));
  const VariantId a = world.add("a", 10), b = world.add("b", 10), c = world.add("c", 10);
  const auto evicted = [&](EvictionReason reason) {
    return world.cache.stats().evicted(Tier::kDevice, reason);
  };
  for (const VariantId id : {a, b, c}) serve(world, id);  // c takes the room of a
  EXPECT_EQ(evicted(EvictionReason::kRoom), 1u);
  ASSERT_TRUE(world.cache.evict(b).ok());
  world.run();
  EXPECT_EQ(evicted(EvictionReason::kAsked), 1u);
  serve(world, a);
  world.set_budget(Tier::kDevice, 10);
  EXPECT_EQ(evicted(EvictionReason::kBudget), 1u);
  // The one that is left is busy; b waits past the age bound.
  const VariantId left = world.on_device(a) ? a : c;
  world.want(left);
  world.want(b);
  world.tick(11);
  EXPECT_EQ(evicted(EvictionReason::kAge), 0u);
  world.release(left);
  EXPECT_EQ(evicted(EvictionReason::kAge), 1u);
  world.loaded(b);
  world.release(b);
  world.cache.retire(b);
  world.run();
  EXPECT_EQ(evicted(EvictionReason::kRetired), 1u);
  EXPECT_EQ(evicted(EvictionReason::kRoom), 1u);
}

TEST(CacheFigures, AHostCopyThatGoesIsCountedThere) {
  CacheWorld world(options(10, 10));
  const VariantId a = world.add("a", 10), b = world.add("b", 10);
  serve(world, a);
  world.want(b);
  EXPECT_EQ(world.cache.tier(Tier::kHost).loading, 10);
  world.demoted(a);
  EXPECT_EQ(world.cache.tier(Tier::kHost).loading, 0);
  EXPECT_EQ(world.cache.stats().evicted(Tier::kDevice, EvictionReason::kRoom), 1u);
  world.set_budget(Tier::kHost, 0);
  EXPECT_EQ(world.cache.stats().evicted(Tier::kHost, EvictionReason::kBudget), 1u);
}

TEST(CacheFigures, ACalledBackVariantWasNotEvicted) {
  CacheWorld world(options(10, 30));
  const VariantId a = world.add("a", 10), b = world.add("b", 10);
  serve(world, a);
  world.want(b);
  EXPECT_TRUE(world.want(a));
  world.demoted(a);
  EXPECT_EQ(world.cache.stats().evicted(Tier::kDevice, EvictionReason::kRoom), 0u);
}

TEST(CacheFigures, BytesBeingLoaded) {
  CacheWorld world(options(30));
  const VariantId a = world.add("a", 10), b = world.add("b", 20);
  world.want(a);
  world.want(b);
  EXPECT_EQ(world.cache.tier(Tier::kDevice).loading, 30);
  world.loaded(a);
  EXPECT_EQ(world.cache.tier(Tier::kDevice).loading, 20);
  EXPECT_EQ(world.cache.tier(Tier::kDevice).used, 30);
  world.end_load(b, unavailable("broken"), 0);
  EXPECT_EQ(world.cache.tier(Tier::kDevice).loading, 0);
}

TEST(CacheFigures, WhatTheWaitersWaitFor) {
  CacheWorld world(options(10, 0, 1));
  const VariantId a = world.add("a", 10), b = world.add("b", 10);
  world.want(a);
  world.want(a);
  world.want(b);
  CacheWaiting waiting = world.cache.waiting();
  EXPECT_EQ(waiting.load, 2);
  EXPECT_EQ(waiting.loader, 1);  // the one load slot is a's
  world.loaded(a);
  waiting = world.cache.waiting();
  EXPECT_EQ(waiting.load, 0);
  EXPECT_EQ(waiting.memory, 1);  // a is in use
  world.tick(11);
  world.want(a);
  waiting = world.cache.waiting();
  EXPECT_EQ(waiting.drain, 1);  // a must go first
  EXPECT_EQ(waiting.memory, 1);
  EXPECT_EQ(waiting.total(), 2);
  world.release(a);
  world.release(a);
  waiting = world.cache.waiting();
  EXPECT_EQ(waiting.load, 1);
  EXPECT_EQ(waiting.loader, 1);
  world.leave(a);
  EXPECT_EQ(world.cache.waiting().total(), 1);
}

}  // namespace
}  // namespace deltad
