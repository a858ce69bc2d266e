// The transformer, written once against backend/ops.h. Owned by the engine and called by its thread
// only. Published method: Llama (arXiv 2302.13971) with grouped-query attention (arXiv 2305.13245).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/config.h"
#include "model/weight_table.h"

namespace deltad {

// One step's rows. Rows of a sequence are contiguous and in order; sequences are sorted so that
// those of one slot are contiguous (groups).
struct Batch {
  std::vector<int32_t> ids;         // [M] token ids
  std::vector<RowGroup> groups;     // cover the M rows
  std::vector<SequenceSpan> spans;  // cover the M rows
  std::vector<int32_t> logit_rows;  // [R] ascending rows whose logits are wanted; may be empty
};

struct Logits {
  TensorView values;           // fp32 [R, width]; valid until the next forward()
  std::vector<int64_t> vocab;  // [R] columns that count in each row
};

class Transformer {
 public:
  // max_rows: the largest M of a batch, max_logit_rows: of R; max_vocab: widest head of any variant
  // that may come (grows later by grow_vocab). Allocates all activations once.
  static Result<std::unique_ptr<Transformer>> make(const ModelConfig& config,
                                                   const WeightTable& table, Backend& backend,
                                                   int64_t max_rows, int64_t max_logit_rows,
                                                   int64_t max_positions);

  // Called for observers of a step: index −1 is the embedding, 0…L−1 the residual stream after each
  // block, L after the final norm (of all rows); hidden fp32 or activation type [M, H].
  using Observer = std::function<void(int index, TensorView hidden)>;

  // Runs one step over the cache. slots[s] is the variant bound to slot s of this batch.
  Result<Logits> forward(const Batch& batch, const KvView& kv,
                         std::span<const VariantWeights* const> slots,
                         const Observer* observer = nullptr);

  const AttentionShape& attention_shape() const { return shape_; }
  int64_t max_rows() const { return max_rows_; }

 private:
  Transformer(const ModelConfig& config, const WeightTable& table, Backend& backend);
  Status ensure_logits(int64_t rows, int64_t columns);

  const ModelConfig config_;
  const WeightTable& table_;
  Backend& backend_;
  AttentionShape shape_{};
  int64_t max_rows_ = 0, max_logit_rows_ = 0;
  Buffer residual_, normed_, qkv_, attended_, gated_, gathered_, logits_, cos_sin_;
  int64_t logits_columns_ = 0, positions_ = 0;
};

}  // namespace deltad
