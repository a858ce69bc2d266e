// MonoSoup, OPCM and the low-rank operations against an independent implementation in fp64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "merge/keep_rule.h"
#include "merge/low_rank.h"
#include "merge/monosoup.h"
#include "merge/opcm.h"
#include "reference.h"

namespace deltad {
namespace {

using testing::expect_close;
using testing::kMatrices;
using testing::Reference;

constexpr std::pair<const char*, const char*> kRules[] = {
    {"energy", "0.8"}, {"effective", "effective"}, {"rank", "rank:5"}};

KeepRule rule_of(const std::string& text) {
  auto rule = KeepRule::parse(text);
  EXPECT_TRUE(rule.ok()) << text;
  return *rule;
}

// Where all singular values are equal, which directions lead is anyone's choice.
bool has_one_answer(const std::string& matrix) { return matrix != "equal"; }

TEST(Monosoup, PublishedFormIsTheReference) {
  const Reference reference;
  for (const std::string name : kMatrices)
    for (const auto& [label, text] : kRules) {
      const std::string what = name + ".monosoup." + label;
      Matrix delta = reference.matrix(name + ".delta");
      auto figures = monosoup(rule_of(text), name == "tiny" ? 1e-8 : 10.0, &delta);
      ASSERT_TRUE(figures.ok()) << what << figures.status().message();
      const Matrix expected = reference.matrix(what + ".figures");
      if (name == "zero") {
        EXPECT_FALSE(figures->changed);
      } else if (has_one_answer(name)) {
        EXPECT_EQ(static_cast<double>(figures->k), static_cast<double>(expected.at(0, 0))) << what;
        EXPECT_NEAR(figures->energy, static_cast<double>(expected.at(0, 1)), 1e-5) << what;
        // √(1 − P) near P = 1 magnifies the last digits of P.
        EXPECT_NEAR(figures->lambda_low, static_cast<double>(expected.at(0, 2)), 2e-3) << what;
        EXPECT_EQ(figures->lambda_high, 1 - figures->lambda_low);
      }
      if (has_one_answer(name)) expect_close(delta, reference.matrix(what), 2e-3, what);
    }
}

TEST(Monosoup, LeavesASmallChangeAsItIs) {
  const Reference reference;
  Matrix delta = reference.matrix("square.delta");
  const Matrix before = delta;
  auto figures = monosoup(rule_of("0.8"), 1e9, &delta);
  ASSERT_TRUE(figures.ok());
  EXPECT_FALSE(figures->changed);
  EXPECT_EQ(delta.values, before.values);
}

TEST(Monosoup, AveragedFormAddsTheLeadingPart) {
  const Reference reference;
  for (const std::string name : kMatrices)
    for (const auto& [label, text] : kRules) {
      if (!has_one_answer(name)) continue;
      const std::string what = name + ".truncated." + label;
      const Matrix delta = reference.matrix(name + ".delta");
      Matrix total(delta.rows, delta.columns);
      auto figures = add_truncated(rule_of(text), delta, 1, &total);
      ASSERT_TRUE(figures.ok()) << what;
      expect_close(total, reference.matrix(what), 1e-5, what);
      auto again = add_truncated(rule_of(text), delta, -1, &total);
      ASSERT_TRUE(again.ok());
      EXPECT_LE(squares(total), 1e-10 * squares(delta)) << what;
    }
}

TEST(Opcm, ProjectionIsTheReference) {
  const Reference reference;
  for (const std::string name : kMatrices)
    for (const auto& [text, share] : {std::pair{"0.2", 0.2}, std::pair{"0.5", 0.5}}) {
      const std::string what = name + ".opcm." + text;
      // Directions of equal or zero singular values are not determined.
      if (!has_one_answer(name) || name == "deficient" || name == "zero_rows") continue;
      Matrix merged = reference.matrix(name + ".delta");
      auto figures = add_projected(reference.matrix(name + ".tau"), share, &merged);
      ASSERT_TRUE(figures.ok()) << what;
      EXPECT_EQ(static_cast<double>(figures->rank),
                static_cast<double>(reference.matrix(what + ".rank").at(0, 0)))
          << what;
      expect_close(merged, reference.matrix(what), 2e-3, what);
    }
}

// What holds whatever directions the decomposition chose: nothing is left along the leading ones,
// and what is added is orthogonal to what was there.
TEST(Opcm, WhatIsAddedIsOrthogonalToWhatWasThere) {
  const Reference reference;
  for (const std::string name : kMatrices) {
    const Matrix before = reference.matrix(name + ".delta");
    Matrix added = before;
    ASSERT_TRUE(add_projected(reference.matrix(name + ".tau"), 0.5, &added).ok()) << name;
    for (size_t i = 0; i < added.values.size(); ++i) added.values[i] -= before.values[i];
    const double size = std::sqrt(squares(added) * squares(before));
    EXPECT_LE(std::abs(inner(added, before)), 1e-5 * size + 1e-30) << name;
  }
}

TEST(Opcm, AZeroTaskVectorChangesNothing) {
  const Reference reference;
  const Matrix before = reference.matrix("square.delta");
  Matrix merged = before;
  ASSERT_TRUE(add_projected(Matrix(24, 24), 0.5, &merged).ok());
  EXPECT_EQ(merged.values, before.values);
}

LowRank adapter(const Reference& reference, int index) {
  const std::string name = "lora." + std::to_string(index);
  return {reference.matrix(name + ".b"), reference.matrix(name + ".a")};
}

Matrix formed(const LowRank& x) { return multiply(x.b, As::kIs, x.a, As::kIs); }

TEST(LowRank, CosineIsThatOfTheFormedProducts) {
  const Reference reference;
  const Matrix expected = reference.matrix("lora.cosine");
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j)
      EXPECT_NEAR(cosine(adapter(reference, i), adapter(reference, j)),
                  static_cast<double>(expected.at(i, j)), 1e-6)
          << i << " " << j;
}

TEST(LowRank, SimilarityIsTheMeanOverLayers) {
  const Reference reference;
  const LowRank x = adapter(reference, 0), y = adapter(reference, 2);
  const double alike = cosine(x, y);
  EXPECT_NEAR(*similarity({{"p", x}, {"q", x}}, {{"p", x}, {"q", y}}), (1 + alike) / 2, 1e-6);
  // A layer that one lacks counts as 0.
  EXPECT_NEAR(*similarity({{"p", x}, {"q", x}}, {{"p", x}}), 0.5, 1e-6);
  EXPECT_NEAR(*similarity({{"p", x}}, {{"p", x}, {"q", x}}), 0.5, 1e-6);
  EXPECT_EQ(*similarity({}, {}), 0);
  LowRank other = y;
  other.a = Matrix(6, 20);
  const auto refused = similarity({{"layer", x}}, {{"layer", other}});
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), ::testing::HasSubstr("layer"));
}

TEST(LowRank, RunningAverageIsTheReference) {
  const Reference reference;
  const Matrix kept = reference.matrix("lora.average.kept");
  auto first = running_average(adapter(reference, 0), 1, adapter(reference, 1), 5);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->factors.b.columns, 5);
  expect_close(formed(first->factors), reference.matrix("lora.average.1"), 1e-5, "first");
  EXPECT_NEAR(first->kept_energy, static_cast<double>(kept.at(0, 0)), 1e-5);
  auto second = running_average(first->factors, 2, adapter(reference, 2), 5);
  ASSERT_TRUE(second.ok());
  expect_close(formed(second->factors), reference.matrix("lora.average.2"), 1e-5, "second");
  EXPECT_NEAR(second->kept_energy, static_cast<double>(kept.at(0, 1)), 1e-5);
}

TEST(LowRank, AverageOfZerosIsZero) {
  const Reference reference;
  const LowRank zero = adapter(reference, 3);
  auto average = running_average(zero, 1, zero, 3);
  ASSERT_TRUE(average.ok());
  EXPECT_EQ(squares(formed(average->factors)), 0);
  EXPECT_EQ(average->kept_energy, 1);
}

TEST(KeepRule, ReadsItsForms) {
  for (const char* text : {"0.8", "effective", "rank:16", "all", "1"})
    EXPECT_EQ(rule_of(text).str(), text);
  for (const char* text :
       {"", "0", "1.5", "-1", "nan", "rank:", "rank:0", "rank:x", "best", "0.8x"})
    EXPECT_EQ(KeepRule::parse(text).status().code(), Code::kInvalidArgument) << text;
  auto rules = KeepRules::parse({"0.7", "down_proj=rank:3"});
  ASSERT_TRUE(rules.ok());
  EXPECT_EQ(rules->of("down_proj").str(), "rank:3");
  EXPECT_EQ(rules->of("up_proj").str(), "0.7");
}

TEST(KeepRule, EqualValuesHaveTheirNumberAsEffectiveRank) {
  EXPECT_EQ(rule_of("effective").count(std::vector<float>(18, 0.25f)), 18);
  EXPECT_EQ(rule_of("effective").count({2, 0, 0}), 1);
  EXPECT_EQ(rule_of("0.8").count({2, 1, 0}), 1);
  EXPECT_EQ(rule_of("0.81").count({2, 1, 0}), 2);
}

}  // namespace
}  // namespace deltad
