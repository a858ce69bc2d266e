#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace deltad {
namespace {

TEST(BlockPool, GivesTheLowestFirstAndThenWhatCameBackLast) {
  BlockPool pool(4);
  EXPECT_EQ(pool.take_free(), 0);
  EXPECT_EQ(pool.take_free(), 1);
  pool.release(0, false);
  EXPECT_EQ(pool.take_free(), 0);
  EXPECT_EQ(pool.take_free(), 2);
  EXPECT_EQ(pool.take_free(), 3);
  EXPECT_EQ(pool.take_free(), -1);
  EXPECT_EQ(pool.used(), 4);
}

TEST(BlockPool, ABlockIsFreeWhenItsLastHolderLetsGo) {
  BlockPool pool(2);
  const int32_t block = pool.take_free();
  pool.retain(block);
  pool.release(block, false);
  EXPECT_EQ(pool.free(), 1);
  EXPECT_EQ(pool.refs(block), 1);
  pool.release(block, false);
  EXPECT_EQ(pool.free(), 2);
}

TEST(BlockPool, CachedBlocksGoInTheOrderOfTheirRelease) {
  BlockPool pool(3);
  for (int i = 0; i < 3; ++i) pool.take_free();
  pool.release(1, true);
  pool.release(2, true);
  pool.release(0, true);
  EXPECT_EQ(pool.cached(), 3);
  EXPECT_EQ(pool.available(), 3);
  EXPECT_EQ(pool.take_free(), -1);
  EXPECT_EQ(pool.oldest_cached(), 1);
  pool.retain(1);  // in use again: no longer to be reclaimed
  EXPECT_EQ(pool.oldest_cached(), 2);
  pool.drop_cached(2);
  EXPECT_EQ(pool.take_free(), 2);
  EXPECT_EQ(pool.oldest_cached(), 0);
  pool.release(1, true);
  EXPECT_EQ(pool.oldest_cached(), 0);
}

TEST(BlockPool, CountsAddUpUnderRandomUse) {
  constexpr int32_t kBlocks = 23;
  BlockPool pool(kBlocks);
  std::mt19937 random(7);
  std::vector<int32_t> refs(kBlocks, 0);
  std::vector<bool> cached(kBlocks, false);
  for (int i = 0; i < 20000; ++i) {
    const int32_t block = static_cast<int32_t>(random() % kBlocks);
    const auto b = static_cast<size_t>(block);
    switch (random() % 4) {
      case 0:
        if (const int32_t taken = pool.take_free(); taken >= 0) {
          EXPECT_EQ(refs[static_cast<size_t>(taken)], 0);
          EXPECT_FALSE(cached[static_cast<size_t>(taken)]);
          refs[static_cast<size_t>(taken)] = 1;
        }
        break;
      case 1:
        if (refs[b] > 0 || cached[b]) {
          pool.retain(block);
          ++refs[b];
          cached[b] = false;
        }
        break;
      case 2:
        if (refs[b] > 0) {
          const bool keep = random() % 2 == 0;
          pool.release(block, keep);
          if (--refs[b] == 0) cached[b] = keep;
        }
        break;
      case 3:
        if (const int32_t oldest = pool.oldest_cached(); oldest >= 0) {
          EXPECT_TRUE(cached[static_cast<size_t>(oldest)]);
          pool.drop_cached(oldest);
          cached[static_cast<size_t>(oldest)] = false;
        }
        break;
    }
    int32_t used = 0, kept = 0;
    for (int32_t k = 0; k < kBlocks; ++k) {
      ASSERT_EQ(pool.refs(k), refs[static_cast<size_t>(k)]);
      used += refs[static_cast<size_t>(k)] > 0;
      kept += cached[static_cast<size_t>(k)];
    }
    ASSERT_EQ(pool.used(), used);
    ASSERT_EQ(pool.cached(), kept);
    ASSERT_EQ(pool.free(), kBlocks - used - kept);
  }
}

}  // namespace
}  // namespace deltad
