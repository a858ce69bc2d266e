// How texts and chats are cut into what is scored.
#include "eval/passages.h"

#include <gtest/gtest.h>

namespace deltad {
namespace {

using Ids = std::vector<int32_t>;

TEST(CutPassages, EachBeginsWithTheBeginTokensAndIsScoredAfterThem) {
  const auto cut = cut_passages({1}, {5, 6, 7, 8, 9}, 3);
  ASSERT_TRUE(cut.ok());
  ASSERT_EQ(cut->size(), 3u);
  EXPECT_EQ((*cut)[0].ids, (Ids{1, 5, 6}));
  EXPECT_EQ((*cut)[1].ids, (Ids{1, 7, 8}));
  EXPECT_EQ((*cut)[2].ids, (Ids{1, 9}));
  for (const Passage& passage : *cut) EXPECT_EQ(passage.first, 1);
}

TEST(CutPassages, WithoutABeginTokenTheFirstIsNotScored) {
  const auto cut = cut_passages({}, {5, 6, 7, 8, 9}, 4);
  ASSERT_TRUE(cut.ok());
  ASSERT_EQ(cut->size(), 1u);  // the last token alone has nothing before it
  EXPECT_EQ((*cut)[0].ids, (Ids{5, 6, 7, 8}));
  EXPECT_EQ((*cut)[0].first, 1);
}

TEST(CutPassages, ATextOfNothingIsRefused) {
  EXPECT_EQ(cut_passages({1}, {}, 8).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(cut_passages({}, {5}, 8).status().code(), Code::kInvalidArgument);
}

TEST(TokenAfter, IsWhatFollowsInTheWholeChat) {
  EXPECT_EQ(token_after({1, 2, 3}, {1, 2, 3, 9, 4}), 9);
  EXPECT_EQ(token_after({1, 2, 3}, {1, 2, 3}), std::nullopt);
  EXPECT_EQ(token_after({1, 2, 3}, {1, 2, 8, 9}), std::nullopt);
}

}  // namespace
}  // namespace deltad
