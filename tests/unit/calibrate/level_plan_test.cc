// Levels and ranks under a budget of bytes.
#include "calibrate/level_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace deltad {
namespace {

using ::testing::HasSubstr;

using Levels = std::map<std::string, int>;

MatrixCosts without_ranks(const std::string& weight, int64_t bytes,
                          const std::vector<double>& errors) {
  MatrixCosts costs{weight, bytes, 7, {}};
  for (const double error : errors) costs.error.push_back({error});
  return costs;
}

Levels levels_of(const std::vector<MatrixCosts>& matrices, int64_t bytes) {
  Levels levels;
  for (const auto& [weight, form] : plan_forms(matrices, bytes)) {
    levels[weight] = form.levels;
    EXPECT_EQ(form.rank, 0) << weight;
  }
  return levels;
}

TEST(LevelBudget, IsBitsAWeightOrBytes) {
  const std::vector<MatrixCosts> matrices = {{"a", 100, 9, {}}, {"b", 300, 9, {}}};
  EXPECT_EQ(LevelBudget::parse("1.5bit")->bytes_for(matrices), 600);
  EXPECT_EQ(LevelBudget::parse("4bit")->bytes_for(matrices), 1600);
  EXPECT_EQ(LevelBudget::parse("777")->bytes_for(matrices), 777);
  for (const char* text :
       {"", "bit", "0bit", "-1bit", "5bit", "1.5", "1.5bits", "nanbit", "0", "x"})
    EXPECT_THAT(LevelBudget::parse(text).status().message(), HasSubstr("1.5bit")) << text;
}

TEST(PlanForms, TakesWhatPaysMostForAByte) {
  const std::vector<MatrixCosts> matrices = {without_ranks("large", 100, {10, 4, 2, 1}),
                                             without_ranks("small", 10, {2, 1, 0.5, 0.25}),
                                             without_ranks("negligible", 50, {1e-9, 1e-10, 0, 0})};
  EXPECT_EQ(levels_of(matrices, 0), (Levels{{"large", 0}, {"small", 0}, {"negligible", 0}}));
  EXPECT_EQ(levels_of(matrices, 15), (Levels{{"large", 0}, {"small", 1}, {"negligible", 0}}));
  EXPECT_EQ(levels_of(matrices, 110), (Levels{{"large", 1}, {"small", 1}, {"negligible", 0}}));
  EXPECT_EQ(levels_of(matrices, 330), (Levels{{"large", 3}, {"small", 3}, {"negligible", 0}}));
  EXPECT_EQ(levels_of(matrices, 1000), (Levels{{"large", 3}, {"small", 3}, {"negligible", 2}}));
}

TEST(PlanForms, TakesTwoLevelsWhereOneAloneDoesNothing) {
  EXPECT_EQ(levels_of({without_ranks("a", 10, {1, 1, 0.1})}, 20), (Levels{{"a", 2}}));
  EXPECT_EQ(levels_of({without_ranks("a", 10, {1, 1, 0.1})}, 19), (Levels{{"a", 0}}));
}

TEST(PlanForms, BuysRanksWithWhatIsOverAfterOneLevelOfAll) {
  // Beside the signs of `low` a rank takes nearly all that is left; beside those of `dense`,
  // little.
  const std::vector<MatrixCosts> matrices = {
      {"low", 100, 10, {{10}, {4, 0.4, 0.3}, {2, 0.2, 0.1}}},
      {"dense", 100, 10, {{10}, {4, 3.99, 3.98}, {1, 0.99, 0.98}}}};
  const auto planned = [&](int64_t bytes) {
    std::string text;
    for (const auto& [weight, form] : plan_forms(matrices, bytes))
      text += weight + " " + std::to_string(form.levels) + "+" + std::to_string(form.rank) + " ";
    return text;
  };
  EXPECT_EQ(planned(100), "dense 0+0 low 1+0 ");  // of equal ones the first
  EXPECT_EQ(planned(200), "dense 1+0 low 1+0 ");
  EXPECT_EQ(planned(209), "dense 1+0 low 1+0 ");
  EXPECT_EQ(planned(210), "dense 1+0 low 1+1 ");
  EXPECT_EQ(planned(310), "dense 2+0 low 1+1 ");
  EXPECT_EQ(planned(320), "dense 2+0 low 1+2 ");
  EXPECT_EQ(planned(10000), "dense 2+2 low 2+2 ");
}

// Errors fall with levels and with ranks.
std::vector<MatrixCosts> random_costs(std::mt19937* random, int matrices, int levels, int ranks) {
  const auto share = [&] { return 0.2 + static_cast<double>((*random)() % 70) / 100; };
  std::vector<MatrixCosts> all;
  for (int i = 0; i < matrices; ++i) {
    MatrixCosts costs{std::to_string(i),
                      20 + static_cast<int64_t>((*random)() % 100),
                      1 + static_cast<int64_t>((*random)() % 8),
                      {}};
    double error = 1000 + static_cast<double>((*random)() % 1000);
    costs.error.push_back({error});
    std::vector<double> shares = {1};
    for (int r = 1; r <= ranks; ++r) shares.push_back(shares.back() * share());
    for (int l = 1; l <= levels; ++l) {
      costs.error.push_back({error *= share() * 0.5});
      for (int r = 1; r <= ranks; ++r)
        costs.error.back().push_back(error * shares[static_cast<size_t>(r)]);
    }
    all.push_back(costs);
  }
  return all;
}

struct Sum {
  int64_t bytes = 0;
  double error = 0;
};

Sum sum_of(const std::vector<MatrixCosts>& matrices, const FormPlan& plan) {
  Sum sum;
  for (const MatrixCosts& costs : matrices) {
    const MatrixForm& form = plan.at(costs.weight);
    sum.bytes += costs.bytes(form);
    sum.error += costs.error[static_cast<size_t>(form.levels)][static_cast<size_t>(form.rank)];
  }
  return sum;
}

TEST(PlanForms, NeverExceedsTheBudgetAndLeavesNothingThatFits) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const int ranks = round % 2 == 0 ? 0 : 5;
    const auto matrices = random_costs(&random, 12, 3, ranks);
    const auto budget = static_cast<int64_t>(random() % 3000);
    const FormPlan plan = plan_forms(matrices, budget);
    const int64_t left = budget - sum_of(matrices, plan).bytes;
    EXPECT_GE(left, 0);
    for (const MatrixCosts& costs : matrices) {
      const MatrixForm& form = plan.at(costs.weight);
      EXPECT_TRUE(form.levels == 3 || costs.level_bytes > left) << round;
      if (budget > one_level_bytes(matrices)) {
        EXPECT_TRUE(form.rank == ranks || costs.rank_bytes > left) << round;
      } else {
        EXPECT_EQ(form.rank, 0) << round;
      }
    }
  }
}

TEST(PlanForms, RanksNeverMakeItWorseAndMoreBytesNeither) {
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    const auto matrices = random_costs(&random, 6, 3, 5);
    auto without = matrices;
    for (MatrixCosts& costs : without)
      for (auto& errors : costs.error) errors.resize(1);
    const int64_t one = one_level_bytes(matrices);
    double before = 1e300;
    for (int64_t budget = one / 2; budget < 4 * one; budget += one / 16) {
      const Sum planned = sum_of(matrices, plan_forms(matrices, budget)),
                levels = sum_of(without, plan_forms(without, budget));
      EXPECT_LE(planned.error, levels.error);
      EXPECT_LE(planned.error, before) << budget;
      before = planned.error;
      if (budget <= one) {
        EXPECT_EQ(planned.error, levels.error);
      }
    }
  }
}

// What is left on the table is less than a step: no choice whatever of levels and ranks that is
// smaller by the largest step does better.
TEST(PlanForms, ComesCloseToTheBestOfAllChoices) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    auto matrices = random_costs(&random, 3, 2, 3);
    for (MatrixCosts& costs : matrices) costs.error[0] = {1e6};  // a first level of all comes first
    int64_t largest = 0;
    for (const MatrixCosts& costs : matrices)
      largest = std::max(largest, costs.level_bytes + 3 * costs.rank_bytes);
    const int64_t one = one_level_bytes(matrices);
    for (int64_t budget = one + largest; budget < 2 * one + 30; budget += 11) {
      double best = 1e300;
      for (int code = 0; code < 8 * 8 * 8; ++code) {
        FormPlan plan;
        int rest = code;
        for (const MatrixCosts& costs : matrices) {
          plan[costs.weight] = {1 + rest % 2, rest / 2 % 4};
          rest /= 8;
        }
        const Sum sum = sum_of(matrices, plan);
        if (sum.bytes <= budget - largest) best = std::min(best, sum.error);
      }
      EXPECT_LE(sum_of(matrices, plan_forms(matrices, budget)).error, best * (1 + 1e-12));
    }
  }
}

}  // namespace
}  // namespace deltad
