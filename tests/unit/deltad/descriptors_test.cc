// What of the descriptors each listener gets.
#include "deltad/descriptors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace deltad {
namespace {

TEST(Descriptors, ConnectionsNeverTakeAll) {
  for (const size_t limit : {size_t{80}, size_t{96}, size_t{128}, size_t{1024}, size_t{65536}})
    for (const size_t wanted : {size_t{1}, size_t{100}, size_t{16384}})
      for (int listeners = 1; listeners <= 2; ++listeners)
        for (int admins = 0; admins <= 2; ++admins) {
          const Connections given = divide_descriptors(limit, wanted, listeners, admins);
          EXPECT_GE(given.listener, 1u);
          EXPECT_GE(given.admin, 1u);
          EXPECT_LE(given.listener, wanted);
          EXPECT_LE(given.admin, wanted);
          EXPECT_LE(given.listener * static_cast<size_t>(listeners) +
                        given.admin * static_cast<size_t>(admins),
                    limit - 64)
              << limit << " " << wanted << " " << listeners << " " << admins;
        }
}

TEST(Descriptors, LowLimitsAreShared) {
  EXPECT_EQ(divide_descriptors(96, 16384, 1, 0).listener, 32u);
  EXPECT_EQ(divide_descriptors(96, 16384, 2, 0).listener, 16u);
  EXPECT_EQ(divide_descriptors(96, 16384, 2, 2).listener, 14u);
  EXPECT_EQ(divide_descriptors(96, 16384, 2, 2).admin, 2u);
  EXPECT_EQ(divide_descriptors(10, 16384, 2, 2).listener, 1u);  // whatever comes of it
  EXPECT_EQ(divide_descriptors(1 << 20, 16384, 2, 2).admin, 16384u);
}

TEST(Descriptors, WhatIsAskedForIsEnough) {
  for (const size_t wanted : {size_t{100}, size_t{16384}, size_t{65536}})
    for (int listeners = 1; listeners <= 2; ++listeners)
      for (int admins = 0; admins <= 2; ++admins) {
        const size_t need = descriptors_for(wanted, listeners, admins);
        EXPECT_EQ(divide_descriptors(need, wanted, listeners, admins).listener, wanted);
        EXPECT_LT(divide_descriptors(need - 64, wanted, listeners, admins).listener, wanted);
      }
}

TEST(Descriptors, TheLimitIsRaised) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{before.rlim_max / 2, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(raise_descriptor_limit(), before.rlim_max);
  rlimit after{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace deltad
