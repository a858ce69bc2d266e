// Names that stand for members of the adapter pool: what a switch of all at once does to requests
// that run, that wait and that come.
#include <gmock/gmock.h>

#include "tests/support/router_world.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;
using testing::RouterWorld;

class PoolNames : public ::testing::Test {
 protected:
  PoolNames() : world(RouterWorld::options(100)) {}
  const std::string& digest(size_t request) { return world.asked[request].digest; }
  RouterWorld world;
};

TEST_F(PoolNames, OneMemberIsLoadedOnceForAllItsNames) {
  ASSERT_TRUE(world.publish({{"m", 10}}, {{"a", "m"}, {"b", "m"}}).ok());
  const size_t a = world.ask("a"), b = world.ask("b"), own = world.ask("m");
  ASSERT_EQ(world.jobs.size(), 1u);
  world.loaded("m");
  for (const size_t request : {a, b, own}) {
    EXPECT_TRUE(world.asked[request].in_engine);
    EXPECT_EQ(digest(request), "pool/m");
  }
  EXPECT_EQ(world.used(Tier::kDevice), 10);
  EXPECT_EQ(world.info("a").member, "m");
  EXPECT_EQ(world.info("a").path, "pool/m");
  EXPECT_EQ(world.info("m").member, "");
  EXPECT_EQ(world.core.stats().registered, 1);
}

TEST_F(PoolNames, ASwitchKeepsRunningRequestsAndTakesWaitingOnesAlong) {
  ASSERT_TRUE(world.publish({{"x", 10}, {"y", 10}}, {{"a", "x"}, {"b", "y"}}).ok());
  const size_t running = world.ask("a");
  world.loaded("x");
  ASSERT_TRUE(world.asked[running].in_engine);
  const size_t waiting = world.ask("b");
  ASSERT_TRUE(world.loading("y"));
  ASSERT_TRUE(world.publish({{"xy", 12}}, {{"a", "xy"}, {"b", "xy"}}).ok());
  const size_t fresh = world.ask("a");
  world.end_load(world.jobs.begin()->first, cancelled("nobody waits for it any more"));
  world.loaded("xy");
  EXPECT_EQ(digest(running), "pool/x");
  EXPECT_EQ(digest(waiting), "pool/xy");
  EXPECT_EQ(digest(fresh), "pool/xy");
  EXPECT_EQ(world.used(Tier::kDevice), 22);  // the old member, while a request is on it
  world.finish(running);
  EXPECT_EQ(world.used(Tier::kDevice), 12);
}

TEST_F(PoolNames, WaitingRequestsGoOnAtOnceWhereTheNewMemberIsInMemory) {
  ASSERT_TRUE(world.publish({{"x", 10}, {"y", 10}}, {{"a", "x"}, {"b", "y"}}).ok());
  const size_t a = world.ask("a");
  world.loaded("x");
  const size_t b = world.ask("b"), direct = world.ask("y");
  ASSERT_TRUE(world.publish({{"x", 10}}, {{"a", "x"}, {"b", "x"}}).ok());
  EXPECT_EQ(digest(b), "pool/x");
  EXPECT_EQ(world.loads["x"], 1) << "a member that stays is not loaded again";
  // Who asked for the member itself asked for what is no more.
  EXPECT_EQ(world.asked[direct].status.code(), Code::kNotFound);
  world.finish(a);
  world.finish(b);
}

TEST_F(PoolNames, AMemberWhoseFileBecameAnotherOneIsRefused) {
  ASSERT_TRUE(world.publish({{"x", 10}}, {{"a", "x"}}).ok());
  const size_t a = world.ask("a");
  EXPECT_FALSE(world.load_outdated(world.jobs.begin()->first, {10, "another"}));
  EXPECT_EQ(world.asked[a].status.code(), Code::kUnavailable);
}

TEST_F(PoolNames, NoVariantIsNamedAsAMember) {
  EXPECT_EQ(world.add("pool/x", 10).code(), Code::kInvalidArgument);
}

TEST_F(PoolNames, ANameThatLeavesEndsThoseThatWaitForIt) {
  ASSERT_TRUE(world.publish({{"x", 10}}, {{"a", "x"}, {"b", "x"}}).ok());
  const size_t a = world.ask("a"), b = world.ask("b");
  ASSERT_TRUE(world.publish({{"x", 10}}, {{"b", "x"}}).ok());
  EXPECT_EQ(world.asked[a].status.code(), Code::kNotFound);
  EXPECT_THAT(world.asked[a].status.message(), HasSubstr("'a' left the adapter pool"));
  world.loaded("x");
  EXPECT_TRUE(world.asked[b].in_engine);
  EXPECT_EQ(world.core.resolve("a").status().code(), Code::kNotFound);
}

TEST_F(PoolNames, ASwitchBetweenResolveAndSubmitIsSeen) {
  ASSERT_TRUE(world.publish({{"x", 10}, {"y", 10}}, {{"a", "x"}, {"b", "y"}}).ok());
  const auto resolved = world.core.resolve("a");
  // The old member stays, but it no longer stands for the name.
  ASSERT_TRUE(world.publish({{"x", 10}, {"y", 10}}, {{"a", "y"}, {"b", "x"}}).ok());
  Request request;
  request.on_event = [](const TokenEvent&) {};
  const auto submitted = world.core.submit(*resolved, std::move(request));
  ASSERT_TRUE(submitted.ok());
  world.run();
  EXPECT_EQ(world.info("y").waiting, 1);
  EXPECT_EQ(world.info("x").waiting, 0);
  world.core.cancel(submitted->ticket);
  world.run();
}

TEST_F(PoolNames, ATextOfItsOwnKeepsAWaitingRequestFromGoingOver) {
  ASSERT_TRUE(world.publish({{"x", 10}}, {{"a", "x"}}).ok());
  const size_t waiting = world.ask("a");
  world.text = std::make_shared<TextAssets>();
  ASSERT_TRUE(world.publish({{"y", 10}}, {{"a", "y"}}).ok());
  EXPECT_EQ(world.asked[waiting].status.code(), Code::kUnavailable);
  EXPECT_THAT(world.asked[waiting].status.message(),
              HasSubstr("replaced while the request waited"));
}

TEST_F(PoolNames, NamesDoNotCollideWithVariantsOrTheBase) {
  ASSERT_TRUE(world.add("v", 10).ok());
  ASSERT_TRUE(world.publish({{"x", 10}}, {{"a", "x"}}).ok());
  EXPECT_EQ(world.publish({{"x", 10}}, {{"v", "x"}}).code(), Code::kConflict);
  EXPECT_EQ(world.publish({{"v", 10}}, {}).code(), Code::kConflict);
  EXPECT_EQ(world.publish({{"x", 10}}, {{"base", "x"}}).code(), Code::kInvalidArgument);
  EXPECT_EQ(world.publish({{"x", 10}}, {{"a", "z"}}).code(), Code::kInvalidArgument);
  EXPECT_EQ(world.publish({{"x", 10}}, {{"x", "x"}}).code(), Code::kInvalidArgument);
  // Each refusal has left everything as it was.
  EXPECT_TRUE(world.core.resolve("a").ok());
  EXPECT_EQ(world.add("a", 10).code(), Code::kConflict);
  EXPECT_EQ(world.add("x", 10).code(), Code::kConflict);
  EXPECT_THAT(world.replace("a", 10).message(), HasSubstr("the adapter pool's"));
  EXPECT_THAT(world.remove("x").message(), HasSubstr("the adapter pool's"));
  ASSERT_TRUE(world.core.reserve("later").ok());
  EXPECT_THAT(world.add("later", 10).message(), HasSubstr("being given to an adapter"));
  EXPECT_EQ(world.core.reserve("v").code(), Code::kConflict);
  world.core.release_name("later");
  EXPECT_TRUE(world.add("later", 10).ok());
}

TEST_F(PoolNames, ALimitIsOfTheNameAndStaysWithIt) {
  ASSERT_TRUE(world.publish({{"x", 10}}, {{"a", "x"}, {"b", "x"}}).ok());
  VariantLimit limit;
  limit.requests_per_second = 0.001;
  ASSERT_TRUE(world.core.set_limit("a", limit).ok());
  world.ask("a");
  EXPECT_EQ(world.asked[world.ask("a")].status.code(), Code::kResourceExhausted);
  EXPECT_FALSE(world.asked[world.ask("b")].refused);
  ASSERT_TRUE(world.publish({{"y", 10}}, {{"a", "y"}, {"b", "y"}}).ok());
  EXPECT_EQ(world.asked[world.ask("a")].status.code(), Code::kResourceExhausted);
  EXPECT_EQ(world.info("a").limit, limit);
}

TEST_F(PoolNames, PopularityPinsAndMemoryGoOverToTheNewMember) {
  ASSERT_TRUE(world.publish({{"x", 10}}, {{"a", "x"}}).ok());
  ASSERT_TRUE(world.core.pin("a").ok());
  world.run();
  world.loaded("x");
  ASSERT_TRUE(world.publish({{"y", 10}}, {{"a", "y"}}).ok());
  EXPECT_TRUE(world.info("a").pinned);
  ASSERT_TRUE(world.loading("y")) << "nobody has asked yet, but it was in memory";
  world.loaded("y");
  EXPECT_EQ(world.used(Tier::kDevice), 10);
}

TEST_F(PoolNames, AVariantUnderNoNameIsOnlyItsHolders) {
  auto entry = std::make_shared<CatalogEntry>();
  entry->name = "candidate";
  entry->path = "c";
  world.files["c"] = {10, "c"};
  const ModelHandle model = world.core.open_private(entry);
  EXPECT_FALSE(world.core.resolve("candidate").ok());
  EXPECT_TRUE(world.core.variants().empty());
  int ends = 0;
  Request request;
  request.on_event = [&](const TokenEvent&) { ++ends; };
  ASSERT_TRUE(world.core.submit(model, std::move(request)).ok());
  world.run();
  world.core.close_private(model);
  world.run();
  EXPECT_EQ(ends, 1);
  EXPECT_EQ(world.core.submit(model, Request()).status().code(), Code::kNotFound);
  for (const auto& [id, job] : std::map(world.jobs)) world.end_load(id, cancelled("closed"));
  EXPECT_EQ(world.used(Tier::kDevice), 0);
  EXPECT_EQ(world.core.requests(), 0u);
}

}  // namespace
}  // namespace deltad
