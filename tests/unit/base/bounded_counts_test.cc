#include "base/bounded_counts.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace deltad {
namespace {

std::vector<std::string> names(const BoundedCounts<uint64_t>& counts) {
  std::vector<std::string> out;
  for (const auto& [name, count] : counts.own()) out.push_back(name);
  return out;
}

TEST(BoundedCounts, TheOneUsedLongestAgoGivesItsPlaceUp) {
  BoundedCounts<uint64_t> counts(2);
  counts.of("a") += 5;
  counts.of("b") += 7;
  counts.of("a") += 1;
  counts.of("c") += 9;
  EXPECT_EQ(names(counts), (std::vector<std::string>{"c", "a"}));
  EXPECT_EQ(counts.find("b"), nullptr);
  EXPECT_EQ(counts.others(), 7u);
  counts.of("b") += 1;  // begins again at zero: what went to the others stays there
  EXPECT_EQ(*counts.find("b"), 1u);
  EXPECT_EQ(counts.others(), 7u + 6u);
}

TEST(BoundedCounts, AnOfferTakesNoPlaceFromAnother) {
  BoundedCounts<uint64_t> counts(2);
  counts.offer("never used");
  counts.of("a") += 1;
  counts.offer("too late");
  EXPECT_EQ(names(counts), (std::vector<std::string>{"a", "never used"}));
  counts.of("b") += 1;
  EXPECT_EQ(names(counts), (std::vector<std::string>{"b", "a"}));
}

TEST(BoundedCounts, WhatIsForgottenStillCounts) {
  BoundedCounts<uint64_t> counts(2);
  counts.of("a") += 3;
  counts.forget("a");
  counts.forget("nobody");
  EXPECT_EQ(counts.own().size(), 0u);
  EXPECT_EQ(counts.others(), 3u);
}

TEST(BoundedCounts, NoCountIsLostAndTheOthersNeverFall) {
  BoundedCounts<uint64_t> counts(10);
  std::mt19937 random(1);
  uint64_t others = 0;
  for (uint64_t i = 1; i <= 10'000; ++i) {
    const std::string name = std::to_string(random() % 30);
    counts.of(name) += 1;
    if (random() % 50 == 0) counts.forget(std::to_string(random() % 30));
    uint64_t sum = counts.others();
    for (const auto& [own, count] : counts.own()) sum += count;
    ASSERT_EQ(sum, i);
    ASSERT_GE(counts.others(), others);
    ASSERT_LE(counts.own().size(), 10u);
    others = counts.others();
  }
}

}  // namespace
}  // namespace deltad
