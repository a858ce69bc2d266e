#include "parallel/shard_map.h"

#include <fmt/core.h>

#include "backend/ops.h"
#include "backend/weight_rows.h"
#include "base/worker_team.h"

namespace deltad {
namespace {

Range range_of(const Share& share) { return {share.begin, share.end}; }
Range times(const Range& range, int64_t factor) {
  return {range.begin * factor, range.end * factor};
}

Status too_many(int ranks, int64_t enough, const char* what, int64_t size) {
  return invalid_argument(fmt::format(
      "tensor parallelism of {}: the model's {} {} are enough for {}", ranks, size, what, enough));
}

// Whole KV heads with all their query heads; or, with more ranks than KV heads, the query heads of
// one KV head dealt out to the ranks that all keep that one.
Status share_heads(const ModelConfig& config, std::vector<RankShare>* shares) {
  const int ranks = static_cast<int>(shares->size());
  const auto kv_heads = static_cast<int>(config.kv_heads);
  const int64_t group = config.heads / config.kv_heads;
  if (ranks <= kv_heads) {
    for (int r = 0; r < ranks; ++r) {
      RankShare& share = (*shares)[static_cast<size_t>(r)];
      share.kv_heads = range_of(share_of(kv_heads, 1, r, ranks));
      share.heads = times(share.kv_heads, group);
    }
    return {};
  }
  if (ranks > config.heads) return too_many(ranks, config.heads, "heads", config.heads);
  for (int head = 0; head < kv_heads; ++head) {
    const Share owners = share_of(ranks, 1, head, kv_heads);
    const auto count = static_cast<int>(owners.end - owners.begin);
    for (int i = 0; i < count; ++i) {
      RankShare& share = (*shares)[static_cast<size_t>(owners.begin + i)];
      const Share heads = share_of(group, 1, i, count);
      share.kv_heads = {head, head + 1};
      share.heads = {head * group + heads.begin, head * group + heads.end};
    }
  }
  return {};
}

Status share_units(int64_t size, int64_t unit, const char* what, Range RankShare::*field,
                   std::vector<RankShare>* shares) {
  const int ranks = static_cast<int>(shares->size());
  const int64_t units = (size + unit - 1) / unit;
  if (units < ranks) return too_many(ranks, units, what, size);
  for (int r = 0; r < ranks; ++r)
    (*shares)[static_cast<size_t>(r)].*field = range_of(share_of(size, unit, r, ranks));
  return {};
}

}  // namespace

Result<ShardMap> ShardMap::make(const ModelConfig& config, int ranks) {
  if (ranks < 1 || ranks > kMostRanks)
    return invalid_argument(
        fmt::format("tensor parallelism of {}: expected 1 to {}", ranks, kMostRanks));
  ShardMap map;
  map.config_ = config;
  map.table_ = make_weight_table(config);
  map.shares_.resize(static_cast<size_t>(ranks));
  RETURN_IF_ERROR(share_heads(config, &map.shares_));
  RETURN_IF_ERROR(share_units(config.intermediate, kInnerUnit, "columns of the MLP",
                              &RankShare::inner, &map.shares_));
  RETURN_IF_ERROR(share_units(config.vocab, kVocabUnit, "tokens", &RankShare::vocab, &map.shares_));
  map.cuts_.resize(map.table_.specs.size(), Cut::kNone);
  const auto cut = [&](WeightId id, Cut how) { map.cuts_[static_cast<size_t>(id)] = how; };
  cut(map.table_.embedding, Cut::kVocabRows);
  cut(map.table_.head, Cut::kVocabRows);
  for (const LayerWeights& layer : map.table_.layers) {
    cut(layer.qkv, Cut::kHeadRows);
    cut(layer.attention_out, Cut::kHeadColumns);
    cut(layer.gate_up, Cut::kInnerRows);
    cut(layer.down, Cut::kInnerColumns);
  }
  return map;
}

Status ShardMap::check_place(WeightId weight, int part) const {
  return deltad::check_place(table_.specs, weight, part);
}

ModelConfig ShardMap::config(int rank) const {
  const RankShare& mine = share(rank);
  ModelConfig config = config_;
  config.heads = mine.heads.size();
  config.kv_heads = mine.kv_heads.size();
  config.intermediate = mine.inner.size();
  config.vocab = mine.vocab.size();
  return config;
}

TensorShard ShardMap::shard(int rank, WeightId weight, int part, int64_t rows) const {
  const RankShare& mine = share(rank);
  TensorShard shard{{0, rows}, {0, spec(weight).columns}};
  switch (cuts_[static_cast<size_t>(weight)]) {
    case Cut::kNone:
      break;
    case Cut::kHeadRows:  // parts: q, k, v
      shard.rows = times(part == 0 ? mine.heads : mine.kv_heads, config_.head_dim);
      break;
    case Cut::kInnerRows:
      shard.rows = mine.inner;
      break;
    case Cut::kVocabRows:
      shard.rows = mine.vocab;
      if (rank + 1 == ranks()) shard.rows.end = rows;
      break;
    case Cut::kHeadColumns:
      shard.columns = times(mine.heads, config_.head_dim);
      break;
    case Cut::kInnerColumns:
      shard.columns = mine.inner;
      break;
  }
  return shard;
}

TensorShard ShardMap::shard(int rank, WeightId weight, int part) const {
  return shard(rank, weight, part, spec(weight).parts[static_cast<size_t>(part)].rows);
}

int32_t ShardMap::local_token(int rank, int32_t token) const {
  const Range& mine = share(rank).vocab;
  const bool here = token >= mine.begin && (token < mine.end || rank + 1 == ranks());
  return here ? static_cast<int32_t>(token - mine.begin) : kElsewhere;
}

}  // namespace deltad
