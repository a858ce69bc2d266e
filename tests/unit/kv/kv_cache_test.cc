#include "kv/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace deltad {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int32_t kTokens = 4;

KvCache make(int32_t blocks, bool prefix = true) {
  const KvGeometry geometry{2, blocks, kTokens, 64};
  return KvCache(std::move(*Buffer::cpu(static_cast<size_t>(geometry.bytes()))), geometry, prefix);
}

struct Text {
  explicit Text(std::vector<int32_t> t, const std::string& digest = "")
      : tokens(std::move(t)), keys{root_key(digest)} {
    for (size_t i = 0; i + kTokens <= tokens.size(); i += kTokens)
      keys.push_back(chain_key(keys.back(), std::span(tokens).subspan(i, kTokens)));
  }
  std::vector<int32_t> tokens;
  std::vector<BlockKey> keys;
};

// Takes and publishes a block for each full block of the text.
std::vector<int32_t> fill(KvCache& kv, const Text& text) {
  std::vector<int32_t> blocks;
  for (int32_t i = 0; i + 1 < static_cast<int32_t>(text.keys.size()); ++i) {
    blocks.push_back(kv.take());
    kv.publish(text.keys, text.tokens, i, blocks.back());
  }
  return blocks;
}

TEST(KvCache, ViewDescribesItsMemory) {
  const KvCache kv = make(5);
  EXPECT_NE(kv.view().data, nullptr);
  EXPECT_EQ(kv.view().blocks, 5);
  EXPECT_EQ(kv.view().block_tokens, kTokens);
  EXPECT_EQ(kv.view().block_bytes, 64);
  EXPECT_EQ(kv.blocks_for(0), 0);
  EXPECT_EQ(kv.blocks_for(4), 1);
  EXPECT_EQ(kv.blocks_for(5), 2);
}

TEST(KvCache, MatchesTheLongestPrefix) {
  KvCache kv = make(8);
  const Text text({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const std::vector<int32_t> blocks = fill(kv, text);
  const Text same_start({1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0});
  EXPECT_THAT(kv.match(same_start.keys, same_start.tokens, 0, 3),
              ElementsAre(blocks[0], blocks[1]));
  EXPECT_THAT(kv.match(text.keys, text.tokens, 0, 2), ElementsAre(blocks[0], blocks[1]));
  EXPECT_THAT(kv.match(text.keys, text.tokens, 2, 3), ElementsAre(blocks[2]));
  const Text shifted({5, 6, 7, 8});
  EXPECT_THAT(kv.match(shifted.keys, shifted.tokens, 0, 1), IsEmpty()) << "not at its place";
  const Text other({1, 2, 3, 4}, "another variant");
  EXPECT_THAT(kv.match(other.keys, other.tokens, 0, 1), IsEmpty());
}

TEST(KvCache, ReclaimsTheTailOfTheOldestFirst) {
  KvCache kv = make(4);
  const Text old({1, 2, 3, 4, 5, 6, 7, 8}), young({9, 9, 9, 9, 8, 8, 8, 8});
  const std::vector<int32_t> first = fill(kv, old), second = fill(kv, young);
  kv.release(first);
  kv.release(second);
  EXPECT_EQ(kv.pool().cached(), 4);
  EXPECT_EQ(kv.take(), first[1]);
  EXPECT_THAT(kv.match(old.keys, old.tokens, 0, 2), ElementsAre(first[0]));
  EXPECT_EQ(kv.take(), first[0]);
  EXPECT_THAT(kv.match(old.keys, old.tokens, 0, 2), IsEmpty());
  EXPECT_THAT(kv.match(young.keys, young.tokens, 0, 2), ElementsAre(second[0], second[1]));
  EXPECT_EQ(kv.take(), second[1]);
  EXPECT_EQ(kv.take(), second[0]);
  EXPECT_EQ(kv.take(), -1) << "every block is held";
}

TEST(KvCache, BlocksThatNobodyCanFindAreFreeAtOnce) {
  KvCache kv = make(4);
  const Text text({1, 2, 3, 4});
  const std::vector<int32_t> blocks = fill(kv, text);
  const int32_t twin = kv.take();  // computed at the same time: the index keeps the first
  kv.publish(text.keys, text.tokens, 0, twin);
  kv.release(std::vector<int32_t>{twin});
  EXPECT_EQ(kv.pool().free(), 3);
  kv.release(blocks);
  EXPECT_EQ(kv.pool().cached(), 1);

  KvCache without = make(4, false);
  const std::vector<int32_t> all = fill(without, text);
  EXPECT_THAT(without.match(text.keys, text.tokens, 0, 1), IsEmpty());
  without.release(all);
  EXPECT_EQ(without.pool().free(), 4);
}

TEST(KvCache, UnusedMemoryIsNotResident) {
  const KvGeometry geometry{1, 1 << 16, 16, 1 << 12};  // 256 MiB
  KvCache kv(std::move(*Buffer::cpu(static_cast<size_t>(geometry.bytes()))), geometry, true);
  for (int i = 0; i < 4; ++i) kv.take();
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident(static_cast<size_t>(geometry.bytes()) / page);
  ASSERT_EQ(mincore(kv.view().data, static_cast<size_t>(geometry.bytes()), resident.data()), 0);
  EXPECT_EQ(std::count_if(resident.begin(), resident.end(), [](auto r) { return (r & 1) != 0; }),
            0);
}

}  // namespace
}  // namespace deltad
