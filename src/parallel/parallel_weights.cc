#include "parallel/parallel_weights.h"

#include <fmt/core.h>

#include <algorithm>

#include "parallel/each_rank.h"
#include "parallel/parallel_backend.h"

namespace deltad {
namespace {

// Tells a rank's tensors apart: the levels of a part, and its dense replacement after them.
int32_t stream_of(WeightId weight, int part, int kind) { return (weight * 4 + part) * 8 + kind; }

}  // namespace

Result<VariantContent> content_of_rank(const ShardMap& map, int rank,
                                       const VariantContent& content) {
  VariantContent mine = content;
  for (VariantContent::Dense& dense : mine.dense) {
    RETURN_IF_ERROR(map.check_place(dense.weight, dense.part));
    dense.rows = map.shard(rank, dense.weight, dense.part, dense.rows).rows.size();
  }
  return mine;
}

ParallelWeights::ParallelWeights(ParallelBackend& owner, const VariantContent& content,
                                 std::vector<std::unique_ptr<VariantWeights>> weights)
    : owner_(owner),
      map_(owner.shards()),
      content_(content),
      weights_(std::move(weights)),
      rows_(weights_.size()) {
  for (const VariantContent::Dense& dense : content.dense)
    dense_rows_[{dense.weight, dense.part}] = dense.rows;
  for (const VariantContent::LowRank& low : content.low_rank)
    low_ranks_[{low.weight, low.part}] = low.rank;
}

ParallelWeights::~ParallelWeights() { owner_.retire(std::move(weights_)); }

Status ParallelWeights::put_sign_rows(WeightId weight, int part, int level, int64_t first,
                                      int64_t count, const uint8_t* bits) {
  RETURN_IF_ERROR(map_.check_place(weight, part));
  const int64_t columns = map_.spec(weight).columns;
  for (size_t r = 0; r < weights_.size(); ++r)
    RETURN_IF_ERROR(rows_[r].put(
        stream_of(weight, part, level), map_.shard(static_cast<int>(r), weight, part), columns, 1,
        first, count, bits, [&](int64_t at, int64_t n, const uint8_t* own) {
          return weights_[r]->put_sign_rows(weight, part, level, at, n, own);
        }));
  return {};
}

// One α a row: of a rank's own rows, or of all where it has columns.
Status ParallelWeights::put_alpha(WeightId weight, int part, int level, const float* alpha) {
  RETURN_IF_ERROR(map_.check_place(weight, part));
  for (size_t r = 0; r < weights_.size(); ++r) {
    const TensorShard shard = map_.shard(static_cast<int>(r), weight, part);
    RETURN_IF_ERROR(weights_[r]->put_alpha(weight, part, level, alpha + shard.rows.begin));
  }
  return {};
}

Status ParallelWeights::put_dense_rows(WeightId weight, int part, int64_t first, int64_t count,
                                       const uint16_t* values) {
  RETURN_IF_ERROR(map_.check_place(weight, part));
  const WeightSpec& spec = map_.spec(weight);
  const auto rows = dense_rows_.find({weight, part});
  if (rows == dense_rows_.end())
    return invalid_argument(fmt::format("{}: this variant was made without values for it",
                                        spec.parts[static_cast<size_t>(part)].name));
  for (size_t r = 0; r < weights_.size(); ++r)
    RETURN_IF_ERROR(rows_[r].put(
        stream_of(weight, part, kMaxLevels),
        map_.shard(static_cast<int>(r), weight, part, rows->second), spec.columns, 16, first, count,
        reinterpret_cast<const uint8_t*>(values), [&](int64_t at, int64_t n, const uint8_t* own) {
          return weights_[r]->put_dense_rows(weight, part, at, n,
                                             reinterpret_cast<const uint16_t*>(own));
        }));
  return {};
}

// Δ = scale·B·A: rows of the output are rows of B, columns of the input columns of A.
Status ParallelWeights::put_low_rank(WeightId weight, int part, float scale, const float* a,
                                     const float* b) {
  RETURN_IF_ERROR(map_.check_place(weight, part));
  const WeightSpec& spec = map_.spec(weight);
  const auto low_rank = low_ranks_.find({weight, part});
  if (low_rank == low_ranks_.end())
    return invalid_argument(fmt::format("{}: this variant was made without low-rank factors for it",
                                        spec.parts[static_cast<size_t>(part)].name));
  std::vector<float> own_a;
  for (size_t r = 0; r < weights_.size(); ++r) {
    const TensorShard shard = map_.shard(static_cast<int>(r), weight, part);
    const int64_t columns = shard.columns.size();
    own_a.resize(static_cast<size_t>(low_rank->second * columns));
    for (int64_t k = 0; k < low_rank->second; ++k)
      std::copy_n(a + k * spec.columns + shard.columns.begin, columns, own_a.begin() + k * columns);
    RETURN_IF_ERROR(weights_[r]->put_low_rank(weight, part, scale, own_a.data(),
                                              b + shard.rows.begin * low_rank->second));
  }
  return {};
}

void ParallelWeights::alias_weight(WeightId to, WeightId from) {
  for (const auto& weights : weights_) weights->alias_weight(to, from);
}

Status ParallelWeights::populate(const std::function<Status()>& after_each) {
  for (const auto& weights : weights_) RETURN_IF_ERROR(weights->populate(after_each));
  return {};
}

Status ParallelWeights::finish(const std::atomic<bool>* cancelled) {
  return each_rank(static_cast<int>(weights_.size()),
                   [&](int r) { return weights_[static_cast<size_t>(r)]->finish(cancelled); });
}

Result<std::unique_ptr<VariantImage>> ParallelWeights::copy_to_host() const {
  auto image = std::make_unique<ParallelImage>();
  image->content = content_;
  image->ranks.resize(weights_.size());
  RETURN_IF_ERROR(each_rank(static_cast<int>(weights_.size()), [&](int r) -> Status {
    ASSIGN_OR_RETURN(image->ranks[static_cast<size_t>(r)],
                     weights_[static_cast<size_t>(r)]->copy_to_host());
    return {};
  }));
  return std::unique_ptr<VariantImage>(std::move(image));
}

size_t ParallelImage::bytes() const {
  size_t bytes = 0;
  for (const auto& rank : ranks) bytes += rank->bytes();
  return bytes;
}

size_t ParallelWeights::bytes() const {
  size_t bytes = 0;
  for (const auto& weights : weights_) bytes += weights->bytes();
  return bytes;
}

// Tokens are dealt out; what else is replaced has as many rows as the base.
int64_t ParallelWeights::dense_rows(WeightId weight) const {
  if (!map_.has_tokens(weight))
    return weights_[0]->dense_rows(weight) > 0 ? map_.spec(weight).rows() : 0;
  int64_t rows = 0;
  for (const auto& weights : weights_) rows += weights->dense_rows(weight);
  return rows;
}

}  // namespace deltad
