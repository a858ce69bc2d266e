// The transformer, written once against backend/ops.h. Owned by the engine and called by its thread
// only. Published method: Llama (arXiv 2302.13971) with grouped-query attention (arXiv 2305.13245).
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/communicator.h"
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
  TensorView values;           // fp32 [R, width] in host memory; valid until the next forward()
  std::vector<int64_t> vocab;  // [R] columns that count in each row
};

class Transformer {
 public:
  // max_rows: the largest M of a batch; max_positions: the longest context. Allocates the
  // activations once. communicator: null, or of the ranks that have a share of the model each;
  // config and table are then this rank's (parallel/shard_map), as are a batch's ids (kElsewhere:
  // another rank's) and the logits.
  static Result<std::unique_ptr<Transformer>> make(const ModelConfig& config,
                                                   const WeightTable& table, Backend& backend,
                                                   int64_t max_rows, int64_t max_positions,
                                                   Communicator* communicator = nullptr);

  // Called for observers of a step: index −1 is the embedding, 0…L−1 the residual stream after each
  // block, L after the final norm (of all rows); hidden fp32 or activation type [M, H].
  using Observer = std::function<void(int index, TensorView hidden)>;

  // Runs one step over the cache. slots[s] is the variant bound to slot s of this batch.
  Result<Logits> forward(const Batch& batch, const KvView& kv,
                         std::span<const VariantWeights* const> slots,
                         const Observer* observer = nullptr);

  // The same on a device that samples (Ops::most_sampled_top): what each row of logits is for.
  // meanwhile: null, or done while the device works. With a communicator, which collects: rank 0
  // chooses from the logits of all ranks, of which whole_vocab[r] columns count in row r; the
  // others give nothing.
  Result<std::vector<SampleOutcome>> forward_sampled(const Batch& batch, const KvView& kv,
                                                     std::span<const VariantWeights* const> slots,
                                                     std::span<const SampleRequest> wanted,
                                                     const std::function<void()>& meanwhile,
                                                     std::span<const int64_t> whole_vocab = {});

  // What enters a linear layer of a block: its weight and x, activation type [M, d_in].
  using InputObserver = std::function<void(WeightId weight, TensorView x)>;

  // One block alone, for those who walk a model layer by layer on a CPU: residual fp32 [M, H] (rows
  // residual_stride() apart) is what the block before left, and becomes what this one leaves.
  void run_layer(int64_t layer, TensorView residual, const Batch& batch, const KvView& kv,
                 std::span<const VariantWeights* const> slots, const InputObserver* inputs);

  const AttentionShape& attention_shape() const { return shape_; }
  int64_t residual_stride() const { return hidden_stride_; }
  int64_t max_rows() const { return max_rows_; }
  // Memory of activations, logits and the table of rotations, at this moment.
  size_t workspace_bytes() const;

 private:
  Transformer(const ModelConfig& config, const WeightTable& table, Backend& backend,
              Communicator* communicator);
  Status ensure_logits(int64_t rows, int64_t columns);
  TensorView next_partial(int64_t rows);
  // Orders a step up to its logits, if any are wanted; vocab: of their rows. Their memory has room
  // for `columns` in a row, if that is more.
  Result<TensorView> order(const Batch& batch, const KvView& kv,
                           std::span<const VariantWeights* const> slots, const Observer* observer,
                           int64_t columns, std::vector<int64_t>& vocab);
  Result<std::vector<SampleOutcome>> sample_collected(TensorView logits,
                                                      std::span<const int64_t> whole_vocab,
                                                      std::span<const SampleRequest> wanted,
                                                      const std::function<void()>& meanwhile);
  int64_t vocab_of(int32_t slot, std::span<const VariantWeights* const> slots) const;
  void begin(const Batch& batch, std::span<const VariantWeights* const> slots,
             std::span<const RowGroup> logit_groups);
  Status observe(const Observer& observer, int index, TensorView hidden);
  Status run_block(int64_t layer, TensorView residual, const Batch& batch, const KvView& kv,
                   const InputObserver* inputs);

  const ModelConfig config_;
  const WeightTable& table_;
  Backend& backend_;
  Communicator* const communicator_;
  AttentionShape shape_{};
  int64_t max_rows_ = 0, positions_ = 0;
  // Elements from row to row of residual_/gathered_/normed_, qkv_, attended_, gated_.
  int64_t hidden_stride_ = 0, qkv_stride_ = 0, attended_stride_ = 0, gated_stride_ = 0;
  int64_t logits_rows_ = 0, logits_columns_ = 0;
  Buffer residual_;                 // fp32 [M, H]
  std::array<Buffer, 2> partials_;  // fp32 [M, H], with a communicator: this rank's parts of sums
  size_t turn_ = 0;                 // of partials_
  Buffer normed_;                   // activation [M, H]
  Buffer qkv_;                      // fp32 [M, q|k|v]
  Buffer attended_;                 // activation [M, heads·head_dim]
  Buffer gated_;                    // activation [M, I]
  Buffer gathered_;                 // fp32 [R, H]
  Buffer logits_;                   // fp32 [R, V]
  Buffer cos_sin_;                  // fp32 [positions, head_dim]
};

}  // namespace deltad
