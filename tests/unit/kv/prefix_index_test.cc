#include "kv/prefix_index.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace deltad {
namespace {

const std::vector<int32_t> kA{1, 2, 3, 4}, kB{5, 6, 7, 8};

TEST(PrefixIndex, AKeyDependsOnVariantParentAndTokens) {
  const BlockKey base = root_key(""), one = root_key("d1"), two = root_key("d2");
  std::set<std::pair<uint64_t, uint64_t>> keys;
  for (const BlockKey& key :
       {base, one, two, chain_key(base, kA), chain_key(base, kB), chain_key(one, kA),
        chain_key(two, kA), chain_key(chain_key(base, kB), kA), chain_key(chain_key(base, kA), kB)})
    keys.insert({key.low, key.high});
  EXPECT_EQ(keys.size(), 9u);
  EXPECT_EQ(chain_key(one, kA), chain_key(root_key("d1"), kA));
}

TEST(PrefixIndex, BlocksMatchOnlyWithAsManyGeneratedRows) {
  PrefixIndex index(3, 4);
  const BlockKey root = root_key("v");
  const BlockKey prompt = chain_key(root, kA), mixed = chain_key(root, kA, 3);
  EXPECT_EQ(prompt, chain_key(root, kA, 0));
  ASSERT_TRUE(index.insert(mixed, root, kA, 0));
  EXPECT_EQ(index.find(prompt, root, kA), -1);
  EXPECT_EQ(index.find(chain_key(root, kA, 2), root, kA), -1);
  EXPECT_EQ(index.find(mixed, root, kA), 0);
  ASSERT_TRUE(index.insert(prompt, root, kA, 1));
  EXPECT_EQ(index.find(prompt, root, kA), 1);
  // And so with what follows.
  ASSERT_TRUE(index.insert(chain_key(mixed, kB, 4), mixed, kB, 2));
  EXPECT_EQ(index.find(chain_key(prompt, kB, 4), prompt, kB), -1);
  EXPECT_FALSE(chain_key(mixed, kB) == chain_key(prompt, kB));
}

TEST(PrefixIndex, FindsWhatWasInsertedUntilItIsErased) {
  PrefixIndex index(3, 4);
  const BlockKey root = root_key("v"), key = chain_key(root, kA);
  EXPECT_EQ(index.find(key, root, kA), -1);
  EXPECT_TRUE(index.insert(key, root, kA, 2));
  EXPECT_TRUE(index.holds(2));
  EXPECT_EQ(index.find(key, root, kA), 2);
  EXPECT_FALSE(index.insert(key, root, kA, 1)) << "the first block stays";
  EXPECT_FALSE(index.holds(1));
  EXPECT_EQ(index.find(key, root, kA), 2);
  index.erase(2);
  EXPECT_FALSE(index.holds(2));
  EXPECT_EQ(index.find(key, root, kA), -1);
  EXPECT_EQ(index.size(), 0);
}

TEST(PrefixIndex, AnEqualHashOfOtherTokensIsNoMatch) {
  PrefixIndex index(2, 4);
  const BlockKey root = root_key("v"), key = chain_key(root, kA);
  ASSERT_TRUE(index.insert(key, root, kA, 0));
  EXPECT_EQ(index.find(key, root, kB), -1);
  EXPECT_EQ(index.find(key, root_key("w"), kA), -1);
}

}  // namespace
}  // namespace deltad
