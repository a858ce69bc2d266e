// ParallelWeights: a variant's values, each rank's share in its own backend. What a loader puts is
// cut up and handed to every rank that has a part of it. Filled by loader threads, then immutable.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "parallel/rank_rows.h"
#include "parallel/shard_map.h"

namespace deltad {

class ParallelBackend;

class ParallelWeights final : public VariantWeights {
 public:
  // owner outlives it. weights: one a rank, made for content_of_rank() of this content.
  ParallelWeights(ParallelBackend& owner, const VariantContent& content,
                  std::vector<std::unique_ptr<VariantWeights>> weights);
  ~ParallelWeights() override;

  Status put_sign_rows(WeightId weight, int part, int level, int64_t first, int64_t count,
                       const uint8_t* bits) override;
  Status put_alpha(WeightId weight, int part, int level, const float* alpha) override;
  Status put_dense_rows(WeightId weight, int part, int64_t first, int64_t count,
                        const uint16_t* values) override;
  Status put_low_rank(WeightId weight, int part, float scale, const float* a,
                      const float* b) override;
  void alias_weight(WeightId to, WeightId from) override;
  Status populate(const std::function<Status()>& after_each) override;
  Status finish(const std::atomic<bool>* cancelled = nullptr) override;
  Result<std::unique_ptr<VariantImage>> copy_to_host() const override;
  size_t bytes() const override;
  int64_t dense_rows(WeightId weight) const override;

  const VariantWeights& rank(int r) const { return *weights_[static_cast<size_t>(r)]; }

 private:
  using Place = std::pair<WeightId, int>;

  ParallelBackend& owner_;
  const ShardMap& map_;
  const VariantContent content_;
  std::map<Place, int64_t> dense_rows_, low_ranks_;       // of the content
  std::vector<std::unique_ptr<VariantWeights>> weights_;  // index: rank
  std::vector<RankRows> rows_;                            // the same
};

// A variant in the host's memory, each rank's share.
struct ParallelImage final : VariantImage {
  size_t bytes() const override;

  VariantContent content;
  std::vector<std::unique_ptr<VariantImage>> ranks;
};

// What of a variant one rank holds. kInvalidArgument if the model has no such place.
Result<VariantContent> content_of_rank(const ShardMap& map, int rank,
                                       const VariantContent& content);

}  // namespace deltad
