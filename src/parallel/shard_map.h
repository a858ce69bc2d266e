// ShardMap: which part of every tensor each rank of tensor parallelism holds; the same for the
// base's tensors and for what a variant does to them. Pure; docs/tensor_parallel.md has the table.
//
// Rows (column-parallel, by output): q, k, v by whole heads; gate and up; embeddings and head by
// tokens. Columns (row-parallel, by input): o by the same heads, down by the same columns as gate
// and up have rows. Norms are on every rank. Sizes need not divide: shares then differ by one unit.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/weights.h"
#include "base/status.h"
#include "model/config.h"
#include "model/weight_table.h"

namespace deltad {

constexpr int kMostRanks = 64;
// Of the MLP: 8 columns are a byte of signs, and 16 bytes of bf16.
constexpr int64_t kInnerUnit = 8;
constexpr int64_t kVocabUnit = 16;  // rows of embeddings and head: a tile

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// What one rank has of the model.
struct RankShare {
  Range heads;
  Range
      kv_heads;  // those of its heads; where there are fewer than ranks, several have the same one
  Range inner;   // columns of the MLP
  Range vocab;   // tokens whose embeddings and logits it has; of the base
};

// What one rank has of a tensor.
struct TensorShard {
  Range rows, columns;
  bool operator==(const TensorShard&) const = default;
};

class ShardMap {
 public:
  // kInvalidArgument says how many ranks the model is enough for.
  static Result<ShardMap> make(const ModelConfig& config, int ranks);

  int ranks() const { return static_cast<int>(shares_.size()); }
  const RankShare& share(int rank) const { return shares_[static_cast<size_t>(rank)]; }
  // The whole model's weights.
  const WeightTable& table() const { return table_; }
  const WeightSpec& spec(WeightId weight) const {
    return table_.specs[static_cast<size_t>(weight)];
  }
  // Whether its rows are tokens: the embeddings and the head.
  bool has_tokens(WeightId weight) const {
    return cuts_[static_cast<size_t>(weight)] == Cut::kVocabRows;
  }
  // kInvalidArgument unless there is such a weight with such a part.
  Status check_place(WeightId weight, int part) const;
  // The model as this rank computes it. Its weight table has the same ids and parts as the whole
  // model's, with this rank's sizes.
  ModelConfig config(int rank) const;

  // What this rank has of a part with `rows` rows. A variant's embeddings and head may have more
  // rows than the base's: the last rank has what is beyond.
  TensorShard shard(int rank, WeightId weight, int part, int64_t rows) const;
  // The same for the base's part.
  TensorShard shard(int rank, WeightId weight, int part) const;
  // Where this rank has a token: its row of the embeddings, or kElsewhere.
  int32_t local_token(int rank, int32_t token) const;

 private:
  enum class Cut : uint8_t {
    kNone,
    kHeadRows,
    kInnerRows,
    kVocabRows,
    kHeadColumns,
    kInnerColumns
  };

  ModelConfig config_;
  WeightTable table_;
  std::vector<Cut> cuts_;  // index: WeightId
  std::vector<RankShare> shares_;
};

}  // namespace deltad
