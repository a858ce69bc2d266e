#include "parallel/shard_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "backend/ops.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;

ModelConfig model(int64_t hidden, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t inner,
                  int64_t vocab) {
  ModelConfig config;
  config.hidden = hidden;
  config.layers = 2;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.intermediate = inner;
  config.vocab = vocab;
  return config;
}

// How often the ranks have each row and each column of a part.
struct Counts {
  std::vector<int> rows, columns;
};
Counts count(const ShardMap& map, WeightId weight, int part, int64_t rows) {
  Counts counts;
  counts.rows.resize(static_cast<size_t>(rows));
  counts.columns.resize(static_cast<size_t>(map.spec(weight).columns));
  for (int r = 0; r < map.ranks(); ++r) {
    const TensorShard shard = map.shard(r, weight, part, rows);
    for (int64_t i = shard.rows.begin; i < shard.rows.end; ++i) ++counts.rows.at(size_t(i));
    for (int64_t i = shard.columns.begin; i < shard.columns.end; ++i)
      ++counts.columns.at(size_t(i));
  }
  return counts;
}

bool all_are(const std::vector<int>& counts, int n) {
  return std::all_of(counts.begin(), counts.end(), [n](int count) { return count == n; });
}

void check(const ModelConfig& config, int ranks) {
  SCOPED_TRACE(::testing::Message() << config.heads << "/" << config.kv_heads << " heads of "
                                    << config.head_dim << ", MLP " << config.intermediate
                                    << ", vocabulary " << config.vocab << ", ranks " << ranks);
  const auto made = ShardMap::make(config, ranks);
  ASSERT_TRUE(made.ok()) << made.status().message();
  const ShardMap& map = *made;
  const WeightTable& table = map.table();
  for (WeightId id = 0; id < static_cast<WeightId>(table.specs.size()); ++id) {
    const WeightSpec& spec = map.spec(id);
    for (int part = 0; part < static_cast<int>(spec.parts.size()); ++part) {
      SCOPED_TRACE(spec.parts[size_t(part)].name);
      const std::string& name = spec.parts[size_t(part)].name;
      const int64_t rows = spec.parts[size_t(part)].rows;
      const Counts counts = count(map, id, part, rows);
      const bool is_kv =
          name.find("k_proj") != std::string::npos || name.find("v_proj") != std::string::npos;
      const bool by_input =
          name.find("o_proj") != std::string::npos || name.find("down_proj") != std::string::npos;
      if (spec.kind == WeightKind::kVector) {  // on every rank
        EXPECT_TRUE(all_are(counts.rows, ranks));
      } else if (by_input) {  // every column once
        EXPECT_TRUE(all_are(counts.rows, ranks));
        EXPECT_TRUE(all_are(counts.columns, 1));
      } else {  // every row once, but for KV heads that several ranks need
        EXPECT_TRUE(all_are(counts.columns, ranks));
        if (!is_kv || ranks <= config.kv_heads) {
          EXPECT_TRUE(all_are(counts.rows, 1));
        }
        EXPECT_TRUE(
            std::all_of(counts.rows.begin(), counts.rows.end(), [](int n) { return n >= 1; }));
      }
      for (int r = 0; r < ranks; ++r) {  // as the rank's own table has it
        const TensorShard shard = map.shard(r, id, part);
        const WeightTable own = make_weight_table(map.config(r));
        EXPECT_EQ(own.specs[size_t(id)].parts[size_t(part)].rows, shard.rows.size());
        EXPECT_EQ(own.specs[size_t(id)].parts[size_t(part)].name, name);
        EXPECT_EQ(own.specs[size_t(id)].columns, shard.columns.size());
        EXPECT_EQ(own.specs[size_t(id)].alias, spec.alias);
      }
    }
  }

  const int64_t group = config.heads / config.kv_heads;
  for (int r = 0; r < ranks; ++r) {
    const RankShare& share = map.share(r);
    ModelConfig own = map.config(r);
    EXPECT_TRUE(check_config(own).ok()) << check_config(own).message();
    EXPECT_GT(share.heads.size(), 0);
    EXPECT_EQ(share.kv_heads, (Range{share.heads.begin / group, (share.heads.end - 1) / group + 1}))
        << "the KV heads of its heads";
    EXPECT_EQ(share.inner.begin % 8, 0);
    EXPECT_GT(share.inner.size(), 0);
    EXPECT_EQ(share.vocab.begin % 16, 0);
    EXPECT_GT(share.vocab.size(), 0);
    // Nobody has more than a unit more than an equal share.
    EXPECT_LE(share.inner.size(), (config.intermediate + ranks - 1) / ranks + 8);
    EXPECT_LE(share.vocab.size(), (config.vocab + ranks - 1) / ranks + 16);
    if (ranks <= config.kv_heads) {
      EXPECT_LE(share.kv_heads.size(), (config.kv_heads + ranks - 1) / ranks);
    }
  }

  // A variant with more tokens: still each once, the base's where they were.
  const int64_t more = config.vocab + 37;
  for (const WeightId id : {table.embedding, table.head})
    EXPECT_TRUE(all_are(count(map, id, 0, more).rows, 1));
  for (int64_t token = 0; token < more; ++token) {
    int found = 0;
    for (int r = 0; r < ranks; ++r) {
      const int32_t local = map.local_token(r, static_cast<int32_t>(token));
      if (local == kElsewhere) continue;
      ++found;
      EXPECT_EQ(map.shard(r, table.embedding, 0, more).rows.begin + local, token);
    }
    ASSERT_EQ(found, 1) << "token " << token;
  }
}

TEST(ShardMap, SizesThatDivide) {
  for (int ranks : {1, 2, 4, 8}) check(model(64, 16, 8, 8, 128, 256), ranks);
}

TEST(ShardMap, SizesThatDivideByNothing) {
  for (int ranks : {1, 2, 3, 4, 5, 6, 7, 8}) check(model(52, 9, 3, 6, 150, 517), ranks);
}

TEST(ShardMap, RandomModels) {
  std::mt19937 random(7);
  const auto from = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int checked = 0;
  for (int i = 0; i < 300; ++i) {
    const int64_t kv = from(1, 9), group = from(1, 6);
    const ModelConfig config =
        model(from(1, 90), kv * group, kv, 2 * from(1, 20), from(8, 400), from(100, 900));
    const int ranks = static_cast<int>(from(1, 12));
    if (!ShardMap::make(config, ranks).ok()) continue;
    check(config, ranks);
    ++checked;
  }
  EXPECT_GT(checked, 150);
}

// Every number of ranks that the smallest of its parts allows, and no more.
TEST(ShardMap, RefusesMoreRanksThanTheModelIsEnoughFor) {
  const auto message = [](const ModelConfig& config, int ranks) {
    return ShardMap::make(config, ranks).status().message();
  };
  EXPECT_EQ(message(model(64, 4, 2, 16, 160, 512), 4), "");
  EXPECT_THAT(message(model(64, 4, 2, 16, 160, 512), 5), HasSubstr("4 heads are enough for 4"));
  EXPECT_EQ(message(model(64, 8, 8, 16, 40, 512), 5), "");
  EXPECT_THAT(message(model(64, 8, 8, 16, 40, 512), 6),
              HasSubstr("40 columns of the MLP are enough for 5"));
  EXPECT_THAT(message(model(64, 8, 8, 16, 160, 50), 5), HasSubstr("50 tokens are enough for 4"));
  EXPECT_THAT(message(model(64, 8, 8, 16, 160, 50), 0), HasSubstr("expected 1 to 64"));
  EXPECT_THAT(message(model(64, 80, 80, 16, 1600, 5000), 65), HasSubstr("expected 1 to 64"));
}

}  // namespace
}  // namespace deltad
