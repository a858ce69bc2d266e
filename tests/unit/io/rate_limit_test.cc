#include "io/rate_limit.h"

#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"

namespace deltad {
namespace {

TEST(RateLimit, EachTurnIsAfterTheBytesBeforeIt) {
  testing::FakeClock clock;
  RateLimit limit(100, clock);
  EXPECT_EQ(limit.admit(50), clock.now());
  EXPECT_DOUBLE_EQ(seconds(limit.admit(100) - clock.now()), 0.5);
  EXPECT_DOUBLE_EQ(seconds(limit.admit(1) - clock.now()), 1.5);
}

TEST(RateLimit, AnotherRateHoldsFromTheNextReadOn) {
  testing::FakeClock clock;
  RateLimit limit(100, clock);
  (void)limit.admit(100);
  limit.set(50);
  EXPECT_DOUBLE_EQ(seconds(limit.admit(100) - clock.now()), 1);
  EXPECT_DOUBLE_EQ(seconds(limit.admit(1) - clock.now()), 3);
}

}  // namespace
}  // namespace deltad
