#include "engine/step_cost.h"

#include <gtest/gtest.h>

namespace deltad {
namespace {

TEST(StepCost, HasASaneGuessBeforeAnyStep) {
  const StepCost cost;
  EXPECT_GT(cost.prompt_rows_within(0.1, 1), 16);
  EXPECT_LT(cost.prompt_rows_within(0.1, 1), 1000);
  EXPECT_LE(cost.prompt_rows_within(0.001, 64), 0);
}

TEST(StepCost, LearnsAllThreeParts) {
  StepCost cost;
  const auto truth = [](int g, int p) { return 0.008 + 0.0004 * g + 0.0015 * p; };
  for (int i = 0; i < 200; ++i) {
    const int g = 1 + i * 7 % 40;
    cost.observe(g, 0, truth(g, 0));
    cost.observe(g, 64, truth(g, 64));
  }
  EXPECT_NEAR(cost.seconds(10, 0), truth(10, 0), 1e-4);
  EXPECT_NEAR(cost.seconds(64, 0), truth(64, 0), 1e-3);
  EXPECT_NEAR(cost.seconds(10, 32), truth(10, 32), 1e-3);
  EXPECT_NEAR(static_cast<double>(cost.prompt_rows_within(0.1, 20)), (0.1 - truth(20, 0)) / 0.0015,
              2);
}

TEST(StepCost, FollowsAChange) {
  StepCost cost;
  for (int i = 0; i < 100; ++i) cost.observe(8, 64, 0.1);
  for (int i = 0; i < 100; ++i) cost.observe(8, 64, 0.5);
  EXPECT_NEAR(cost.seconds(8, 64), 0.5, 0.05);
}

TEST(StepCost, AConstantNumberOfRowsTellsOnlyTheSum) {
  StepCost cost;
  for (int i = 0; i < 50; ++i) cost.observe(14, 0, 0.030);
  EXPECT_NEAR(cost.seconds(14, 0), 0.030, 1e-6);
  EXPECT_GE(cost.seconds(0, 0), 0);
  EXPECT_LE(cost.seconds(0, 0), 0.030);
}

TEST(StepCost, LearnsAllPartsFromStepsThatHaveThemAll) {
  StepCost cost(1 << 20);
  const auto truth = [](int g, int p, double bytes) {
    return 0.008 + 0.0001 * g + 0.0002 * p + 0.004 * bytes / (1 << 20);
  };
  for (int i = 0; i < 300; ++i) {
    const int g = 20 + i * 7 % 40, p = 16 + i * 31 % 200;
    const double bytes = i * 5 % 9 * double{1 << 18};
    cost.observe(g, p, truth(g, p, bytes), bytes);
  }
  EXPECT_NEAR(cost.generating_row(), 0.0001, 5e-6);
  EXPECT_NEAR(cost.prompt_row(), 0.0002, 5e-6);
  EXPECT_NEAR(cost.seconds(0, 0), 0.008, 4e-4);
  EXPECT_NEAR(cost.delta(1 << 20), 0.004, 2e-4);
}

TEST(StepCost, NoiseInLongStepsHidesNotWhatShortStepsTell) {
  StepCost cost;
  for (int i = 0; i < 600; ++i) {
    const int g = 10 + i * 7 % 40, p = i % 2 * 200;
    const double noise = 1 + 0.1 * (i * 37 % 21 - 10) / 10;
    cost.observe(g, p, (0.008 + 0.0005 * g + 0.001 * p) * noise);
  }
  EXPECT_NEAR(cost.seconds(10, 0), 0.013, 0.0026);
  EXPECT_NEAR(cost.seconds(50, 0), 0.033, 0.0066);
  EXPECT_NEAR(cost.prompt_row(), 0.001, 0.0002);
}

TEST(StepCost, PromptsBeforeAnyGeneratingStepCountInFull) {
  StepCost cost;
  cost.observe(0, 100, 0.2);
  EXPECT_NEAR(cost.seconds(0, 100), 0.2, 0.001);
}

TEST(StepCost, LearnsWhatTheBytesOfDeltasCost) {
  StepCost cost(1 << 20);
  const auto truth = [](int g, int p, double bytes) {
    return 0.008 + 0.0004 * g + 0.0015 * p + 0.002 * bytes / (1 << 18);
  };
  for (int i = 0; i < 300; ++i) {
    const int g = 1 + i * 7 % 40;
    const double bytes = i * 5 % 9 * double{1 << 18};
    cost.observe(g, 0, truth(g, 0, bytes), bytes);
    cost.observe(g, 64, truth(g, 64, bytes), bytes);
  }
  EXPECT_NEAR(cost.delta(1 << 18), 0.002, 2e-5);
  EXPECT_NEAR(cost.seconds(10, 32, 1 << 20), truth(10, 32, 1 << 20), 1e-3);
  EXPECT_NEAR(cost.rows_for(1 << 20), 0.008 / 0.0015, 0.1);
  EXPECT_LT(cost.prompt_rows_within(0.1, 20, 1 << 22), cost.prompt_rows_within(0.1, 20, 0));
}

TEST(StepCost, GuessesADeltasCostByTheBases) {
  StepCost cost(1000);
  EXPECT_NEAR(cost.delta(500), cost.seconds(0, 0) / 2, 1e-12);
  for (int i = 0; i < 50; ++i) cost.observe(1 + i % 5, 0, 0.040 + 0.001 * (1 + i % 5));
  EXPECT_NEAR(cost.delta(500), 0.020, 0.002);
}

TEST(StepCost, RowsAndDeltasThatRiseTogetherTellOnlyTheSum) {
  StepCost cost(1000);
  for (int i = 0; i < 200; ++i) {
    const int g = 1 + i % 14;
    cost.observe(g, 0, 0.010 + 0.003 * g, 100.0 * g);
  }
  EXPECT_NEAR(cost.seconds(7, 0, 700), 0.031, 1e-3);
  EXPECT_GE(cost.delta(100), 0);
  EXPECT_GE(cost.generating_row(), 0);
}

TEST(StepCost, OddMeasurementsDoNoHarm) {
  StepCost cost;
  cost.observe(0, 0, 1);
  cost.observe(1, 0, -1);
  cost.observe(1, 1, 0);
  cost.observe(5, 0, 0);
  for (int i = 0; i < 10; ++i) cost.observe(5, 5, 0);
  EXPECT_GE(cost.seconds(1, 1), 0);
  EXPECT_GT(cost.prompt_rows_within(1e9, 1), 0);
}

}  // namespace
}  // namespace deltad
