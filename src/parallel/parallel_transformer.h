// ParallelTransformer: the transformer on the ranks of a ParallelBackend: one step runs on all of
// them at once, each with its share of the weights and its own heads of the KV cache, and gives
// the logits of the whole vocabulary. Owned by the engine and called by its thread, which is rank
// 0.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kv/kv_cache.h"
#include "model/transformer.h"
#include "parallel/parallel_backend.h"
#include "parallel/rank_threads.h"

namespace deltad {

class ParallelTransformer {
 public:
  // config: of the whole model. Sizes as Transformer::make. backend outlives it.
  static Result<std::unique_ptr<ParallelTransformer>> make(const ModelConfig& config,
                                                           ParallelBackend& backend,
                                                           Duration patience, int64_t max_rows,
                                                           int64_t max_positions);

  // Of one block and layer, on all ranks together.
  int64_t kv_block_bytes(int32_t block_tokens) const;
  // Memory for the KV cache, on each rank for its heads. Once, before forward().
  Status allocate_kv(int32_t blocks, int32_t block_tokens);
  // After that: memory for blocks of preempted sequences, on the host of each rank; null where the
  // cache lies there anyway. It lives no longer than this.
  Result<std::unique_ptr<KvSwap>> new_kv_swap(int32_t host_blocks) const;

  // One step, as Transformer::forward(). slots[s]: made by the backend's new_variant(). After a
  // rank has failed every call gives that error, which names it; the rank may still be at work.
  Result<Logits> forward(const Batch& batch, std::span<const VariantWeights* const> slots);
  // The same where rank 0's device samples and the communicators collect, as
  // Transformer::forward_sampled(). Neither waits for a step without logits.
  Result<std::vector<SampleOutcome>> forward_sampled(const Batch& batch,
                                                     std::span<const VariantWeights* const> slots,
                                                     std::span<const SampleRequest> wanted,
                                                     const std::function<void()>& meanwhile);
  // Memory of all ranks beside weights and KV, after the last step that went well.
  size_t workspace_bytes() const { return workspace_bytes_; }

 private:
  // What the ranks read of a step. Copies, because a rank that was given up may still read them;
  // after that there is no other step.
  struct Step {
    Batch batch;
    std::vector<int32_t> blocks;                            // of all spans
    std::vector<std::vector<const VariantWeights*>> slots;  // of each rank
    bool sampled = false;
  };
  // What rank 0, the engine's thread, has of a step that is sampled; the others have none of it.
  struct Sampling {
    std::span<const SampleRequest> wanted = {};
    std::function<void()> meanwhile = nullptr;
    std::span<const int64_t> vocab = {};
    std::vector<SampleOutcome> outcomes = {};
  };

  ParallelTransformer(const ModelConfig& config, ParallelBackend& backend, Duration patience);
  void set_step(const Batch& batch, std::span<const VariantWeights* const> slots);
  void set_vocab(std::span<const VariantWeights* const> slots);
  Status make_logits();
  // Runs the step on all ranks.
  Status run();
  size_t measure_workspace() const;
  void run_rank(int rank);
  Status try_rank(int rank);

  const ModelConfig config_;
  ParallelBackend& backend_;
  const Duration patience_;
  std::vector<std::unique_ptr<Transformer>> transformers_;  // index: rank
  std::vector<Buffer> caches_;                              // the same
  std::vector<KvView> kv_;                                  // the same
  Step step_;
  Sampling sampling_;
  Buffer memory_;  // of logits_, on the host
  Logits logits_;
  size_t workspace_bytes_ = 0;
  RankThreads threads_;  // last: ends before what it works on
};

}  // namespace deltad
