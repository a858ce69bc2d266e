#include "engine/fair_share.h"

#include <gtest/gtest.h>

namespace deltad {
namespace {

TEST(PromptsOwed, AreAllWhenThereIsEnough) {
  EXPECT_NEAR(prompts_owed({{1, 0.2, 0.3}, {1, 0.1, 0}}, 0, 1), 0.3, 1e-12);
}

TEST(PromptsOwed, AreTheRestWhenOneFlowIsAlone) {
  EXPECT_NEAR(prompts_owed({{1, 0.4, 5}}, 0, 1), 0.6, 1e-12);
  EXPECT_NEAR(prompts_owed({{1, 1.4, 5}}, 0, 1), 0, 1e-12);
}

TEST(PromptsOwed, AreAShareByWeightBesideAFlood) {
  EXPECT_NEAR(prompts_owed({{1, 0.95, 5}}, 1, 1), 0.5, 1e-12);
  EXPECT_NEAR(prompts_owed({{1, 0.95, 5}}, 3, 1), 0.75, 1e-12);
  EXPECT_NEAR(prompts_owed({{1, 0.95, 5}, {4, 0, 5}}, 0, 1), 0.8, 1e-12);
}

TEST(PromptsOwed, WhatSomeDoNotNeedIsSharedOut) {
  // 0.1 and 0.2 are less than a quarter: the flood and the newcomer share 0.7.
  EXPECT_NEAR(prompts_owed({{1, 0.9, 0}, {1, 0.1, 0}, {1, 0, 0.2}}, 1, 1), 0.2 + 0.35, 1e-12);
}

TEST(PromptsOwed, AreNothingOfNothing) {
  EXPECT_EQ(prompts_owed({}, 0, 1), 0);
  EXPECT_EQ(prompts_owed({{1, 0.5, 1}}, 1, -0.5), 0);
  EXPECT_NEAR(prompts_owed({}, 2, 0.5), 0.5, 1e-12);
}

}  // namespace
}  // namespace deltad
