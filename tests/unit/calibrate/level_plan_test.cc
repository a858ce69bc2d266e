// Levels under a budget of bytes.
#include "calibrate/level_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace deltad {
namespace {

using ::testing::HasSubstr;

using Levels = std::map<std::string, int>;

TEST(LevelBudget, IsBitsAWeightOrBytes) {
  const std::vector<LevelCosts> matrices = {{"a", 100, {}}, {"b", 300, {}}};
  EXPECT_EQ(LevelBudget::parse("1.5bit")->bytes_for(matrices), 600);
  EXPECT_EQ(LevelBudget::parse("4bit")->bytes_for(matrices), 1600);
  EXPECT_EQ(LevelBudget::parse("777")->bytes_for(matrices), 777);
  for (const char* text :
       {"", "bit", "0bit", "-1bit", "5bit", "1.5", "1.5bits", "nanbit", "0", "x"})
    EXPECT_THAT(LevelBudget::parse(text).status().message(), HasSubstr("1.5bit")) << text;
}

TEST(PlanLevels, TakesWhatPaysMostForAByte) {
  const std::vector<LevelCosts> matrices = {{"large", 100, {10, 4, 2, 1}},
                                            {"small", 10, {2, 1, 0.5, 0.25}},
                                            {"negligible", 50, {1e-9, 1e-10, 0, 0}}};
  EXPECT_EQ(plan_levels(matrices, 0), (Levels{{"large", 0}, {"small", 0}, {"negligible", 0}}));
  EXPECT_EQ(plan_levels(matrices, 15), (Levels{{"large", 0}, {"small", 1}, {"negligible", 0}}));
  EXPECT_EQ(plan_levels(matrices, 110), (Levels{{"large", 1}, {"small", 1}, {"negligible", 0}}));
  EXPECT_EQ(plan_levels(matrices, 330), (Levels{{"large", 3}, {"small", 3}, {"negligible", 0}}));
  EXPECT_EQ(plan_levels(matrices, 1000), (Levels{{"large", 3}, {"small", 3}, {"negligible", 2}}));
}

TEST(PlanLevels, TakesTwoLevelsWhereOneAloneDoesNothing) {
  EXPECT_EQ(plan_levels({{"a", 10, {1, 1, 0.1}}}, 20), (Levels{{"a", 2}}));
  EXPECT_EQ(plan_levels({{"a", 10, {1, 1, 0.1}}}, 19), (Levels{{"a", 0}}));
}

TEST(PlanLevels, NeverExceedsTheBudgetAndLeavesNothingThatFits) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<LevelCosts> matrices;
    for (int i = 0; i < 12; ++i) {
      LevelCosts costs{std::to_string(i), 1 + static_cast<int64_t>(random() % 100), {}};
      double error = 1 + static_cast<double>(random() % 1000);
      for (int l = 0; l < 4; ++l, error *= 0.2 + static_cast<double>(random() % 70) / 100)
        costs.error.push_back(error);
      matrices.push_back(costs);
    }
    const auto budget = static_cast<int64_t>(random() % 2000);
    const Levels levels = plan_levels(matrices, budget);
    int64_t left = budget;
    for (const LevelCosts& costs : matrices) left -= costs.level_bytes * levels.at(costs.weight);
    EXPECT_GE(left, 0);
    for (const LevelCosts& costs : matrices)
      EXPECT_TRUE(levels.at(costs.weight) == 3 || costs.level_bytes > left) << round;
  }
}

}  // namespace
}  // namespace deltad
