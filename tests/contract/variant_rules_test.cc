// The nine rules of a variant's life (DESIGN §6), each by its number, with a fake clock.
#include <gmock/gmock.h>

#include <thread>

#include "router/router.h"
#include "tests/support/router_world.h"
#include "tests/unit/engine/core_fixture.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;
using testing::RouterWorld;

// A request that comes, is served and goes.
void serve(RouterWorld& world, const std::string& name) {
  const size_t n = world.ask(name);
  if (world.loading(name)) world.loaded(name);
  world.finish(n);
}

// Rule 1.
TEST(VariantRules, OneLoadRunsHoweverManyWait) {
  RouterWorld world(RouterWorld::options(100));
  ASSERT_TRUE(world.add("a", 10).ok());
  for (int i = 0; i < 20; ++i) world.ask("a");
  EXPECT_EQ(world.jobs.size(), 1u);
  EXPECT_EQ(world.info("a").waiting, 20);
  world.loaded("a");
  EXPECT_EQ(world.engine.size(), 20u);
  world.ask("a");
  EXPECT_EQ(world.engine.size(), 21u);
  EXPECT_EQ(world.loads["a"], 1);
}

TEST(VariantRules, AFailedLoadFailsItsWaitersAndIsTriedAgainWithBackOff) {
  RouterWorld world(RouterWorld::options(100));
  ASSERT_TRUE(world.add("a", 10).ok());
  world.ask("a");
  world.ask("a");
  world.load_fails("a", "bad digest");
  for (const auto& asked : world.asked) {
    EXPECT_EQ(asked.ends, 1);
    EXPECT_EQ(asked.reason, FinishReason::kError);
    EXPECT_EQ(asked.status.code(), Code::kUnavailable);
    EXPECT_THAT(asked.status.message(), HasSubstr("'a' cannot be loaded: bad digest"));
  }
  EXPECT_EQ(world.info("a").state, VariantState::kFailed);
  // 1 s, 2 s, 4 s … in which requests are refused with the reason, and nothing is read.
  for (const double back_off : {1.0, 2.0, 4.0}) {
    world.tick(back_off - 0.01);
    const size_t early = world.ask("a");
    EXPECT_TRUE(world.asked[early].refused);
    EXPECT_THAT(world.asked[early].status.message(), HasSubstr("bad digest"));
    EXPECT_FALSE(world.loading("a"));
    world.tick(0.02);
    world.ask("a");
    ASSERT_TRUE(world.loading("a"));
    world.load_fails("a", "bad digest");
  }
  world.tick(60);
  serve(world, "a");
  EXPECT_EQ(world.info("a").error, "");
  EXPECT_EQ(world.used(Tier::kDevice), 10);
}

// Rule 2.
TEST(VariantRules, WhileOneLoadsTheOthersAndTheBaseGoOn) {
  RouterWorld world(RouterWorld::options(100));
  ASSERT_TRUE(world.add("here", 10).ok() && world.add("slow", 10).ok());
  serve(world, "here");
  world.ask("slow");
  ASSERT_TRUE(world.loading("slow"));
  for (const char* name : {"here", "base", "here", "base"}) {
    const size_t n = world.ask(name);
    EXPECT_TRUE(world.asked[n].in_engine) << name;
    world.finish(n);
  }
  EXPECT_TRUE(world.loading("slow"));
}

// An engine that answers at once.
class PromptEngine final : public Engine {
 public:
  Result<RequestHandle> submit(Request request) override {
    request.variant.reset();
    request.on_event(ended_event(FinishReason::kStop, Status()));
    return ++last_;
  }
  Status check(const Request&) const override { return Status(); }
  void cancel(RequestHandle) override {}
  void shutdown(TimePoint) override {}
  EngineStats stats() const override { return {}; }
  int32_t max_context() const override { return 100; }
  bool healthy() const override { return true; }

 private:
  std::atomic<RequestHandle> last_{0};
};

// A disk that gives nothing until it is told to.
class StuckLoader final : public VariantLoader {
 public:
  Result<VariantSize> measure(const std::string&) override { return VariantSize{10, "d"}; }
  Result<VariantRef> load(const std::string& name, const std::string&, Tier, int64_t,
                          const std::atomic<bool>&) override {
    MutexLock lock(mutex_);
    ++loads_;
    changed_.notify_all();
    while (!let_go_) changed_.wait(mutex_);
    auto variant = std::make_shared<Variant>();
    variant->name = name;
    variant->digest = "d";
    variant->bytes = 10;
    return VariantRef(std::move(variant));
  }
  Result<VariantRef> copy(const VariantRef&, Tier, const std::atomic<bool>&) override {
    return unimplemented("one tier");
  }
  void wait_for_load() {
    MutexLock lock(mutex_);
    while (loads_ == 0) changed_.wait(mutex_);
  }
  void let_go() {
    MutexLock lock(mutex_);
    let_go_ = true;
    changed_.notify_all();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int loads_ GUARDED_BY(mutex_) = 0;
  bool let_go_ GUARDED_BY(mutex_) = false;
};

// With the router's own threads: the calls come back although the disk does not.
TEST(VariantRules, NobodyWaitsForTheDiskOfAnother) {
  PromptEngine engine;
  auto owned = std::make_unique<StuckLoader>();
  StuckLoader& loader = *owned;
  RouterOptions options;
  options.base_name = "base";
  options.cache_bytes = 100;
  const auto router = Router::make(options, {{"slow", "/"}}, nullptr, std::move(owned), engine);
  ASSERT_TRUE(router.ok()) << router.status().message();
  int base_ends = 0;
  std::atomic<int> slow_ends{0};
  const auto ask = [&](const std::string& name, std::function<void(const TokenEvent&)> on_event) {
    Request request;
    request.prompt = {1};
    request.on_event = std::move(on_event);
    return (*router)->submit(*(*router)->resolve(name), std::move(request));
  };
  ASSERT_TRUE(ask("slow", [&](const TokenEvent&) { ++slow_ends; }).ok());
  loader.wait_for_load();
  ASSERT_TRUE(ask("base", [&](const TokenEvent&) { ++base_ends; }).ok());
  EXPECT_EQ(base_ends, 1);
  EXPECT_EQ((*router)->variants()[0].state, VariantState::kLoading);
  EXPECT_EQ(slow_ends, 0);
  loader.let_go();
  (*router)->shutdown(TimePoint::max());
  EXPECT_EQ(slow_ends, 1);
}

// Rule 3.
TEST(VariantRules, WhatIsInUseOrPinnedStays) {
  RouterWorld world(RouterWorld::options(30));
  for (const char* name : {"used", "pinned", "idle", "x", "y"})
    ASSERT_TRUE(world.add(name, 10).ok());
  const size_t running = world.ask("used");
  world.loaded("used");
  ASSERT_TRUE(world.core.pin("pinned").ok());
  world.run();
  world.loaded("pinned");
  for (int i = 0; i < 5; ++i) serve(world, "idle");  // asked for more often than the others
  const size_t x = world.ask("x");
  EXPECT_FALSE(world.resident("idle"));
  world.loaded("x");
  world.ask("y");  // x is in use now as well: nothing can go
  EXPECT_FALSE(world.loading("y"));
  EXPECT_TRUE(world.resident("used") && world.resident("pinned") && world.resident("x"));
  EXPECT_TRUE(world.asked[running].in_engine && world.asked[x].in_engine);
  world.finish(x);
  EXPECT_TRUE(world.loading("y"));
}

TEST(VariantRules, AJustLoadedOneServesItsWaitersBeforeItGoes) {
  RouterWorld world(RouterWorld::options(10));
  ASSERT_TRUE(world.add("a", 10).ok() && world.add("b", 10).ok());
  const size_t a = world.ask("a");
  world.ask("b");  // waits for the only place, and is asked for more often
  world.ask("b");
  world.loaded("a");
  EXPECT_TRUE(world.asked[a].in_engine);
  EXPECT_TRUE(world.resident("a"));
  EXPECT_FALSE(world.loading("b"));
  world.finish(a);
  EXPECT_FALSE(world.resident("a"));
  EXPECT_TRUE(world.loading("b"));
}

// Rule 4.
TEST(VariantRules, TheLowestRateGoesAndTiesByLeastRecentUse) {
  RouterCoreOptions options = RouterWorld::options(30);
  options.cache.half_life_seconds = 100;
  RouterWorld world(options);
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) ASSERT_TRUE(world.add(name, 10).ok());
  for (int i = 0; i < 4; ++i) serve(world, "a");
  world.tick(1);
  serve(world, "b");
  serve(world, "b");
  world.tick(1);
  serve(world, "c");
  world.tick(1);
  serve(world, "d");  // c has the lowest rate, although it was used last
  EXPECT_TRUE(world.resident("a") && world.resident("b") && !world.resident("c"));
  // After five half-lives old requests count 1/32.
  world.tick(500);
  serve(world, "b");
  serve(world, "d");
  serve(world, "e");
  EXPECT_FALSE(world.resident("a"));
  // Equal counts at equal times: the one that was used longer ago.
  RouterWorld tied(options);
  for (const char* name : {"p", "q", "r", "s"}) ASSERT_TRUE(tied.add(name, 10).ok());
  const size_t p = tied.ask("p"), q = tied.ask("q"), r = tied.ask("r");
  for (const char* name : {"p", "q", "r"}) tied.loaded(name);
  for (const size_t n : {q, p, r}) {
    tied.tick(1);
    tied.finish(n);
  }
  serve(tied, "s");
  EXPECT_TRUE(tied.resident("p") && !tied.resident("q") && tied.resident("r"));
}

// A hot variant does not go because the cold one is in use just now; but nobody waits for the cold
// one longer than the hot one takes to load.
TEST(VariantRules, TheEndOfAColdOneIsWaitedForInPlaceOfEvictingAHotOne) {
  for (const bool cold_ends : {true, false}) {
    RouterWorld world(RouterWorld::options(20));
    for (const char* name : {"hot", "cold", "x"}) ASSERT_TRUE(world.add(name, 10).ok());
    const size_t hot = world.ask("hot");
    world.tick(1);  // what a load takes
    world.loaded("hot");
    world.finish(hot);
    for (int i = 0; i < 8; ++i) serve(world, "hot");
    const size_t cold = world.ask("cold");
    world.tick(1);
    world.loaded("cold");
    world.ask("x");
    EXPECT_TRUE(world.resident("hot") && !world.loading("x"));
    world.tick(0.9);
    EXPECT_TRUE(world.resident("hot") && !world.loading("x"));
    if (cold_ends)
      world.finish(cold);
    else
      EXPECT_EQ(world.core.wake_time(), world.clock.now() + from_seconds(0.1));
    world.tick(0.1);
    EXPECT_EQ(world.resident("hot"), cold_ends);
    EXPECT_EQ(world.resident("cold"), !cold_ends);
    EXPECT_TRUE(world.loading("x"));
  }
}

TEST(VariantRules, BusyVariantsStayThroughAScanOfColdOnes) {
  RouterWorld world(RouterWorld::options(30));
  ASSERT_TRUE(world.add("busy", 10).ok() && world.add("busier", 10).ok());
  for (int i = 0; i < 3; ++i) {
    serve(world, "busy");
    serve(world, "busier");
  }
  for (int i = 0; i < 50; ++i) {
    const std::string cold = "cold" + std::to_string(i);
    ASSERT_TRUE(world.add(cold, 10).ok());
    serve(world, cold);
    world.tick(1);
  }
  EXPECT_EQ(world.loads["busy"] + world.loads["busier"], 2);
}

// Rule 5.
TEST(VariantRules, AWaiterThatLeavesNeitherCancelsForOthersNorEvicts) {
  RouterWorld world(RouterWorld::options(20));
  for (const char* name : {"here", "busy", "a", "b"}) ASSERT_TRUE(world.add(name, 10).ok());
  serve(world, "here");
  const size_t busy = world.ask("busy");
  world.loaded("busy");
  const size_t first = world.ask("a"), second = world.ask("a");  // takes the place of `here`
  world.leave(first);
  EXPECT_TRUE(world.loading("a"));
  EXPECT_FALSE(world.jobs.begin()->second.entry->cancel_load);
  EXPECT_EQ(world.asked[first].ends, 1);
  EXPECT_EQ(world.asked[first].reason, FinishReason::kCancelled);
  world.loaded("a");
  EXPECT_TRUE(world.asked[second].in_engine);

  const size_t gone = world.ask("b");  // no room: it waits
  world.leave(gone);
  world.finish(second);
  world.finish(busy);
  EXPECT_TRUE(world.resident("a") && world.resident("busy"));
  EXPECT_EQ(world.loads["b"], 0);

  // The last one that leaves stops the load, and not a byte stays.
  const size_t last = world.ask("b");
  ASSERT_TRUE(world.loading("b"));
  world.leave(last);
  EXPECT_TRUE(world.jobs.begin()->second.entry->cancel_load);
  world.end_load(world.jobs.begin()->first, cancelled("stopped"));
  EXPECT_EQ(world.used(Tier::kDevice), 10);
  EXPECT_EQ(world.info("b").state, VariantState::kRegistered);
  // And the next load of it is a fresh one.
  world.ask("b");
  ASSERT_TRUE(world.loading("b"));
  EXPECT_FALSE(world.jobs.begin()->second.entry->cancel_load);
}

// Rule 6.
TEST(VariantRules, HotVariantsCannotStarveAWaitingOne) {
  RouterCoreOptions options = RouterWorld::options(20);
  options.cache.age_bound_seconds = 10;
  RouterWorld world(options);
  for (const char* name : {"hot", "hotter", "cold"}) ASSERT_TRUE(world.add(name, 10).ok());
  std::vector<size_t> hot = {world.ask("hot")};
  std::vector<size_t> hotter = {world.ask("hotter"), world.ask("hotter")};
  world.loaded("hot");
  world.loaded("hotter");
  const size_t cold = world.ask("cold");
  // There is always a request in flight on both.
  for (int second = 1; second < 10; ++second) {
    world.tick(1);
    hot.push_back(world.ask("hot"));
    hotter.push_back(world.ask("hotter"));
    EXPECT_TRUE(world.asked[hot.back()].in_engine) << second;
    world.finish(hot[hot.size() - 2]);
  }
  EXPECT_EQ(world.core.wake_time(), world.clock.now() + std::chrono::seconds(1));
  world.tick(1);
  // The one with the lower rate takes no new requests; its running one ends in peace.
  const size_t late = world.ask("hot");
  EXPECT_FALSE(world.asked[late].in_engine);
  EXPECT_TRUE(world.asked[world.ask("hotter")].in_engine);
  EXPECT_TRUE(world.resident("hot"));
  EXPECT_FALSE(world.loading("cold"));
  world.finish(hot.back());
  EXPECT_FALSE(world.resident("hot"));
  ASSERT_TRUE(world.loading("cold"));
  world.loaded("cold");
  EXPECT_TRUE(world.asked[cold].in_engine);
  // And the other way round: the late request waits its time, not longer.
  world.tick(10);
  world.finish(cold);
  ASSERT_TRUE(world.loading("hot"));
  world.loaded("hot");
  EXPECT_TRUE(world.asked[late].in_engine);
}

TEST(VariantRules, AVictimIsSparedWhenTheWaitingOneLeaves) {
  RouterCoreOptions options = RouterWorld::options(10);
  options.cache.age_bound_seconds = 10;
  RouterWorld world(options);
  ASSERT_TRUE(world.add("hot", 10).ok() && world.add("cold", 10).ok());
  world.ask("hot");
  world.loaded("hot");
  const size_t cold = world.ask("cold");
  world.tick(10);
  const size_t late = world.ask("hot");
  EXPECT_FALSE(world.asked[late].in_engine);
  world.leave(cold);
  EXPECT_TRUE(world.asked[late].in_engine);
}

TEST(VariantRules, AReplacementDoesNotBeginToWaitAnew) {
  RouterCoreOptions options = RouterWorld::options(10);
  options.cache.age_bound_seconds = 10;
  RouterWorld world(options);
  ASSERT_TRUE(world.add("hot", 10).ok() && world.add("cold", 10).ok());
  world.ask("hot");
  world.loaded("hot");
  world.ask("cold");
  world.tick(9);
  ASSERT_TRUE(world.replace("cold", 10).ok());
  EXPECT_TRUE(world.asked[world.ask("hot")].in_engine);
  world.tick(1);
  EXPECT_FALSE(world.asked[world.ask("hot")].in_engine);
}

// Rule 7. RouterWorld checks the budget whenever bytes are taken.
TEST(VariantRules, AReplacementWithoutRoomWaitsUntilTheOldHasDrained) {
  RouterWorld world(RouterWorld::options(25));
  ASSERT_TRUE(world.add("a", 15, "old").ok() && world.add("other", 10).ok());
  serve(world, "other");
  const size_t old_one = world.ask("a");
  world.loaded("a");
  ASSERT_TRUE(world.replace("a", 15, "new").ok());
  const size_t new_one = world.ask("a");
  EXPECT_FALSE(world.loading("a"));
  EXPECT_TRUE(world.resident("other"));  // its bytes would not be enough
  EXPECT_EQ(world.asked[old_one].digest, "old");
  EXPECT_EQ(world.used(Tier::kDevice), 25);
  world.finish(old_one);
  EXPECT_EQ(world.used(Tier::kDevice), 25);
  world.loaded("a");
  EXPECT_EQ(world.asked[new_one].digest, "new");
}

TEST(VariantRules, ReplacedWhileItRunsEachRequestKeepsItsVersion) {
  RouterWorld world(RouterWorld::options(100));
  ASSERT_TRUE(world.add("a", 10, "v1").ok());
  const size_t first = world.ask("a");
  world.loaded("a");
  ASSERT_TRUE(world.core.pin("a").ok());
  ASSERT_TRUE(world.replace("a", 12, "v2").ok());
  const size_t second = world.ask("a");
  world.loaded("a");
  EXPECT_EQ(world.asked[first].digest, "v1");
  EXPECT_EQ(world.asked[second].digest, "v2");
  EXPECT_EQ(world.used(Tier::kDevice), 22);
  EXPECT_TRUE(world.info("a").pinned);
  world.finish(first);
  EXPECT_EQ(world.used(Tier::kDevice), 12);
  // Those that wait for a version that is replaced get the new one.
  ASSERT_TRUE(world.replace("a", 10, "v3").ok());
  const size_t third = world.ask("a");
  ASSERT_TRUE(world.replace("a", 10, "v4").ok());
  world.end_load(world.jobs.begin()->first, cancelled("replaced"));
  world.loaded("a");
  EXPECT_EQ(world.asked[third].digest, "v4");
  ASSERT_TRUE(world.remove("a").ok());
  world.finish(second);
  world.finish(third);
  EXPECT_EQ(world.used(Tier::kDevice), 0);
  EXPECT_EQ(world.asked[world.ask("a")].status.code(), Code::kNotFound);
}

TEST(VariantRules, LoadsInProgressCountInTheBudget) {
  RouterWorld world(RouterWorld::options(25));
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(world.add(name, 10).ok());
  for (const char* name : {"a", "b", "c"}) world.ask(name);
  EXPECT_EQ(world.jobs.size(), 2u);
  EXPECT_EQ(world.core.tier(Tier::kDevice).used, 20);
  ASSERT_TRUE(world.add("vast", 26).ok());
  const size_t vast = world.ask("vast");
  EXPECT_THAT(world.asked[vast].status.message(),
              HasSubstr("'vast' needs 26 bytes and can never fit: the budget is 25"));
}

// Rule 8.
TEST(VariantRules, EveryEndReleasesTheVariant) {
  RouterWorld world(RouterWorld::options(100));
  ASSERT_TRUE(world.add("a", 10).ok());
  std::vector<size_t> choices;  // of one API request with n = 4, each a request of its own
  for (int i = 0; i < 4; ++i) choices.push_back(world.ask("a"));
  world.loaded("a");
  EXPECT_EQ(world.info("a").in_flight, 4);
  world.leave(choices[1]);
  EXPECT_TRUE(world.asked[choices[1]].engine_cancelled);
  EXPECT_EQ(world.info("a").in_flight, 4);  // the engine has it still
  world.finish(choices[0]);
  world.finish(choices[1], FinishReason::kCancelled);
  world.finish(choices[2], FinishReason::kError, internal_error("a kernel failed"));
  EXPECT_EQ(world.info("a").in_flight, 1);
  world.finish(choices[3], FinishReason::kLength);
  EXPECT_EQ(world.info("a").in_flight, 0);
  world.engine_refuses = true;
  world.ask("a");
  world.tick();
  EXPECT_EQ(world.info("a").in_flight, 0);
  EXPECT_EQ(world.core.requests(), 0u);
  ASSERT_TRUE(world.core.evict("a").ok());
  world.run();
  EXPECT_EQ(world.used(Tier::kDevice), 0);
}

// Rule 9.
TEST(VariantRules, WithoutAVariantNothingOfItIsTouched) {
  RouterWorld world(RouterWorld::options(100));
  ASSERT_TRUE(world.add("a", 10).ok());
  serve(world, "a");
  const uint64_t requests = world.core.cache_stats().requests;
  world.finish(world.ask("base"));
  EXPECT_EQ(world.core.cache_stats().requests, requests);
  // And the step has no variant in it, whatever ran before.
  testing::CoreFixture engine;
  engine.submit({1, 2, 3}, 4, testing::make_variant(1));
  engine.run();
  engine.submit({1, 2, 3}, 4);
  engine.step();
  EXPECT_TRUE(engine.model.last_slots.empty());
  engine.run();
}

}  // namespace
}  // namespace deltad
