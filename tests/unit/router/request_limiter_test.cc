// Limits on the requests and tokens of a variant: the buckets, and what the router makes of them.
#include "router/request_limiter.h"

#include <gmock/gmock.h>

#include "tests/support/router_world.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;
using testing::RouterWorld;

VariantLimit requests(double per_second, int64_t burst = 0) { return {per_second, burst, 0}; }
VariantLimit tokens(double per_minute) { return {0, 0, per_minute}; }

TEST(TokenBucket, FillsUpAtItsRateToItsSizeAndOwesWhatIsTakenBeyond) {
  TimePoint now{std::chrono::hours(1)};
  TokenBucket bucket(2, 3);
  EXPECT_EQ(bucket.wait(now), 0);
  bucket.take(3, now);
  EXPECT_DOUBLE_EQ(bucket.wait(now), 0.5);
  now += from_seconds(0.25);
  EXPECT_DOUBLE_EQ(bucket.wait(now), 0.25);
  now += from_seconds(0.25);
  EXPECT_EQ(bucket.wait(now), 0);
  bucket.take(10, now);  // 9 too many
  EXPECT_DOUBLE_EQ(bucket.wait(now), 5);
  now += std::chrono::hours(1);
  bucket.take(3, now);  // it held no more than 3
  EXPECT_DOUBLE_EQ(bucket.wait(now), 0.5);
}

TEST(RequestLimiter, ABurstIsASecondsRequestsUnlessSaid) {
  EXPECT_EQ(requests(0.1).burst_or_default(), 1);
  EXPECT_EQ(requests(2.5).burst_or_default(), 3);
  EXPECT_EQ(requests(2.5, 7).burst_or_default(), 7);
  EXPECT_FALSE(VariantLimit{}.any());
}

TEST(RequestLimiter, SaysWhichLimitAndWhenToComeBack) {
  TimePoint now{std::chrono::hours(1)};
  RequestLimiter limiter({0.25, 1, 600});
  ASSERT_TRUE(limiter.check("a", now).ok());
  limiter.count_request(now);
  const Status many = limiter.check("a", now);
  EXPECT_EQ(many.code(), Code::kResourceExhausted);
  EXPECT_EQ(many.retry_after(), 4);
  EXPECT_THAT(many.message(), HasSubstr("'a' is limited to 0.25 requests a second"));
  limiter.count_tokens(699, now);  // 10 a second come back
  now += std::chrono::seconds(4);
  const Status long_ones = limiter.check("a", now);
  EXPECT_EQ(long_ones.retry_after(), 6);
  EXPECT_THAT(long_ones.message(), HasSubstr("600 tokens a minute"));
  now += std::chrono::seconds(6);
  EXPECT_TRUE(limiter.check("a", now).ok());
}

TEST(RouterLimits, TooManyRequestsAreRefusedAndOthersAreNot) {
  RouterWorld world(RouterWorld::options(100));
  ASSERT_TRUE(world.add("a", 10).ok() && world.add("b", 10).ok());
  ASSERT_TRUE(world.core.set_limit("a", requests(1, 2)).ok());
  EXPECT_EQ(world.info("a").limit, requests(1, 2));
  EXPECT_FALSE(world.asked[world.ask("a")].refused);
  EXPECT_FALSE(world.asked[world.ask("a")].refused);
  const size_t third = world.ask("a");
  EXPECT_TRUE(world.asked[third].refused);
  EXPECT_EQ(world.asked[third].status.code(), Code::kResourceExhausted);
  EXPECT_EQ(world.asked[third].status.retry_after(), 1);
  EXPECT_FALSE(world.asked[world.ask("b")].refused);
  EXPECT_FALSE(world.asked[world.ask("base")].refused);
  world.tick(1);
  EXPECT_FALSE(world.asked[world.ask("a")].refused);
  EXPECT_TRUE(world.asked[world.ask("a")].refused);
  for (const VariantRow& row : world.core.stats().rows)
    EXPECT_EQ(row.counts.limited, row.name == "a" ? 2u : 0u) << row.name;
  ASSERT_TRUE(world.core.set_limit("a", {}).ok());
  EXPECT_FALSE(world.info("a").limit.any());
  EXPECT_FALSE(world.asked[world.ask("a")].refused);
  EXPECT_EQ(world.core.set_limit("nobody", requests(1)).code(), Code::kNotFound);
}

TEST(RouterLimits, TokensCountWhenTheyAreKnown) {
  RouterWorld world(RouterWorld::options(100));
  ASSERT_TRUE(world.add("a", 10).ok());
  ASSERT_TRUE(world.core.set_limit("a", tokens(60)).ok());
  const size_t first = world.ask("a");  // one token of prompt
  world.loaded("a");
  const size_t second = world.ask("a");  // while the first runs nobody knows its length
  ASSERT_TRUE(world.asked[first].in_engine && world.asked[second].in_engine);
  world.finish(first, FinishReason::kStop, {}, 64);
  const size_t third = world.ask("a");
  ASSERT_TRUE(world.asked[third].refused);
  EXPECT_EQ(world.asked[third].status.retry_after(), 7);  // 66 of 60 are used, and one is needed
  world.tick(7);
  EXPECT_FALSE(world.asked[world.ask("a")].refused);
}

TEST(RouterLimits, AllAnswersToOneRequestAreOneRequestWithOnePrompt) {
  RouterWorld world(RouterWorld::options(100));
  ASSERT_TRUE(world.add("a", 10).ok());
  ASSERT_TRUE(world.core.set_limit("a", {1, 1, 60}).ok());
  const auto model = world.core.resolve("a");
  ASSERT_TRUE(model.ok());
  const auto choice = [](int32_t number) {
    Request request;
    request.prompt.assign(40, 1);
    request.follows = number > 0;
    request.choice = number;
    return request;
  };
  for (int32_t i = 0; i < 3; ++i) EXPECT_TRUE(world.core.submit(*model, choice(i)).ok()) << i;
  world.clock.advance(1);
  EXPECT_TRUE(world.core.submit(*model, choice(0)).ok());  // 20 were left
  world.clock.advance(1);
  EXPECT_EQ(world.core.submit(*model, choice(0)).status().retry_after(), 19);
}

TEST(RouterLimits, ARequestThatIsRefusedOtherwiseCountsNothing) {
  RouterCoreOptions options = RouterWorld::options(100);
  options.max_waiting_per_variant = 1;
  RouterWorld world(options);
  ASSERT_TRUE(world.add("a", 10).ok());
  ASSERT_TRUE(world.core.set_limit("a", requests(1, 2)).ok());
  const size_t first = world.ask("a");
  for (int i = 0; i < 5; ++i)
    EXPECT_THAT(world.asked[world.ask("a")].status.message(), HasSubstr("are waiting already"));
  world.leave(first);
  EXPECT_FALSE(world.asked[world.ask("a")].refused);
}

TEST(RouterLimits, BelongToTheNameAndOutliveAReplacement) {
  RouterWorld world(RouterWorld::options(100));
  ASSERT_TRUE(world.add("a", 10).ok());
  ASSERT_TRUE(world.core.set_limit("a", tokens(60)).ok());
  const size_t old = world.ask("a");
  world.loaded("a");
  ASSERT_TRUE(world.replace("a", 10).ok());
  EXPECT_EQ(world.info("a").limit, tokens(60));
  world.finish(old, FinishReason::kStop, {}, 100);  // on the old version, but of the same name
  EXPECT_TRUE(world.asked[world.ask("a")].refused);
  ASSERT_TRUE(world.remove("a").ok());
  ASSERT_TRUE(world.add("a", 10).ok());
  EXPECT_FALSE(world.asked[world.ask("a")].refused);
}

}  // namespace
}  // namespace deltad
