// What the router core counts: each variant by itself for a bounded number of them, and how long
// loads took and requests waited.
#include "router/router_stats.h"

#include <gtest/gtest.h>

#include "tests/support/router_world.h"

namespace deltad {
namespace {

using testing::RouterWorld;

const VariantRow* row(const RouterStats& stats, const std::string& name) {
  for (const VariantRow& r : stats.rows)
    if (r.name == name) return &r;
  return nullptr;
}

TEST(RouterStats, EachVariantIsCounted) {
  RouterWorld world(RouterWorld::options(10));
  ASSERT_TRUE(world.add("a", 10).ok() && world.add("b", 10).ok());
  const size_t first = world.ask("a"), second = world.ask("a");
  world.clock.advance(2);
  world.loaded("a");
  world.finish(first);
  world.finish(second);
  world.ask("b");  // takes the room of a
  world.load_fails("b", "the disk is gone");
  const RouterStats stats = world.core.stats();
  ASSERT_NE(row(stats, "a"), nullptr);
  const VariantRow& a = *row(stats, "a");
  EXPECT_EQ(a.counts.misses, 2u);
  EXPECT_EQ(a.counts.loads, 1u);
  EXPECT_EQ(a.counts.evictions, 1u);
  EXPECT_EQ(a.load_seconds, 1);
  EXPECT_EQ(a.disk, 1);
  const VariantRow& b = *row(stats, "b");
  EXPECT_EQ(b.counts.load_failures, 1u);
  EXPECT_EQ(b.failed, 1);
  EXPECT_EQ(b.counts.loads, 0u);
  EXPECT_EQ(stats.load_seconds.total(), 1u);
  EXPECT_EQ(stats.load_seconds.sum(), 1);
  EXPECT_EQ(stats.parked_seconds.total(), 3u);
  EXPECT_EQ(stats.parked_seconds.sum(), 4);  // two waited for two seconds, one not at all
  EXPECT_EQ(stats.variants[static_cast<size_t>(VariantState::kFailed)], 1);
  EXPECT_EQ(stats.variants[static_cast<size_t>(VariantState::kRegistered)], 1);
}

TEST(RouterStats, RowsAreBoundedAndTheRestIsOneRow) {
  RouterWorld world(RouterWorld::options(1000));
  constexpr size_t kVariants = kMostVariantSeries + 20;
  for (size_t i = 0; i < kVariants; ++i) ASSERT_TRUE(world.add("v" + std::to_string(i), 10).ok());
  EXPECT_EQ(world.core.stats().rows.size(), kMostVariantSeries);  // though none was asked for
  for (size_t i = 0; i < kVariants; ++i) {
    const std::string name = "v" + std::to_string(i);
    const size_t number = world.ask(name);
    world.loaded(name);
    if (i >= 50) world.finish(number);
  }
  const RouterStats stats = world.core.stats();
  EXPECT_EQ(stats.rows.size(), kMostVariantSeries);
  EXPECT_NE(row(stats, "v" + std::to_string(kVariants - 1)), nullptr);  // the one used last
  uint64_t loads = stats.others.counts.loads;
  int64_t bytes = stats.others.bytes, device = stats.others.device, disk = stats.others.disk;
  for (const VariantRow& r : stats.rows) {
    loads += r.counts.loads;
    bytes += r.bytes;
    device += r.device;
    disk += r.disk;
  }
  EXPECT_EQ(loads, kVariants);
  EXPECT_EQ(bytes, stats.device.used);
  EXPECT_EQ(device, 100);
  EXPECT_EQ(disk, static_cast<int64_t>(kVariants) - 100);
  EXPECT_EQ(stats.fit, 100);
}

TEST(RouterStats, ARemovedVariantHasNoRow) {
  RouterWorld world(RouterWorld::options(30));
  ASSERT_TRUE(world.add("a", 10).ok() && world.add("b", 10).ok());
  const size_t number = world.ask("a");
  world.loaded("a");
  ASSERT_TRUE(world.replace("a", 10).ok());
  EXPECT_EQ(row(world.core.stats(), "a")->counts.loads, 1u);  // the name's, not the version's
  ASSERT_TRUE(world.remove("a").ok());
  EXPECT_EQ(row(world.core.stats(), "a"), nullptr);
  EXPECT_EQ(world.core.stats().others.counts.loads, 1u);
  world.finish(number);
  EXPECT_EQ(row(world.core.stats(), "a"), nullptr);
  EXPECT_EQ(world.core.stats().registered, 1);
}

TEST(RouterStats, PromotionsAreCountedApart) {
  RouterWorld world(RouterWorld::options(10, 20));
  ASSERT_TRUE(world.add("a", 10).ok() && world.add("b", 10).ok());
  for (const char* name : {"a", "b", "a"}) {
    const size_t number = world.ask(name);
    for (const char* other : {"a", "b"})
      if (other != std::string(name) && world.loading(other)) world.loaded(other);  // goes out
    world.loaded(name);
    world.finish(number);
  }
  const RouterStats stats = world.core.stats();
  EXPECT_EQ(stats.load_seconds.total(), 2u);
  EXPECT_EQ(stats.promotion_seconds.total(), 1u);
  EXPECT_EQ(row(stats, "b")->host, 1);
  EXPECT_EQ(stats.host.used, 20);
}

}  // namespace
}  // namespace deltad
