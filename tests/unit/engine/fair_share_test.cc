#include "engine/fair_share.h"

#include <gtest/gtest.h>

namespace deltad {
namespace {

TEST(ShareOut, AreAllWhenThereIsEnough) {
  EXPECT_NEAR(share_out({{1, 0.2, 0.3}, {1, 0.1, 0}}, 0, 1).prompts, 0.3, 1e-12);
}

TEST(ShareOut, AreTheRestWhenOneFlowIsAlone) {
  EXPECT_NEAR(share_out({{1, 0.4, 5}}, 0, 1).prompts, 0.6, 1e-12);
  EXPECT_NEAR(share_out({{1, 1.4, 5}}, 0, 1).prompts, 0, 1e-12);
}

TEST(ShareOut, AreAShareByWeightBesideAFlood) {
  EXPECT_NEAR(share_out({{1, 0.95, 5}}, 1, 1).prompts, 0.5, 1e-12);
  EXPECT_NEAR(share_out({{1, 0.95, 5}}, 3, 1).prompts, 0.75, 1e-12);
  EXPECT_NEAR(share_out({{1, 0.95, 5}, {4, 0, 5}}, 0, 1).prompts, 0.8, 1e-12);
}

TEST(ShareOut, WhatSomeDoNotNeedIsSharedOut) {
  // 0.1 and 0.2 are less than a quarter: the flood and the newcomer share 0.7.
  EXPECT_NEAR(share_out({{1, 0.9, 0}, {1, 0.1, 0}, {1, 0, 0.2}}, 1, 1).prompts, 0.2 + 0.35, 1e-12);
}

TEST(ShareOut, AreNothingOfNothing) {
  EXPECT_EQ(share_out({}, 0, 1).prompts, 0);
  EXPECT_EQ(share_out({{1, 0.5, 1}}, 1, -0.5).prompts, 0);
  EXPECT_NEAR(share_out({}, 2, 0.5).prompts, 0.5, 1e-12);
}

TEST(ShareOut, LeavesWhatNobodyCanUse) {
  EXPECT_NEAR(share_out({{1, 0.2, 0.3}, {1, 0.1, 0}}, 0, 1).left, 0.4, 1e-12);
  EXPECT_EQ(share_out({{1, 0.2, 0.3}}, 1, 1).left, 0);
  EXPECT_EQ(share_out({{1, 0.2, 3}}, 0, 1).left, 0);
  EXPECT_EQ(share_out({}, 0, 0.5).left, 0.5);
}

}  // namespace
}  // namespace deltad
