// ParallelRunner: a model on several ranks as the engine sees it. Owned by the engine.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/model_runner.h"
#include "parallel/parallel_transformer.h"

namespace deltad {

class ParallelRunner final : public ModelRunner {
 public:
  // swap: null, or of host_blocks blocks.
  ParallelRunner(std::unique_ptr<ParallelTransformer> transformer, ParallelBackend& backend,
                 std::unique_ptr<KvSwap> swap = nullptr, int32_t host_blocks = 0)
      : transformer_(std::move(transformer)),
        backend_(backend),
        swap_(std::move(swap)),
        host_blocks_(host_blocks) {}

  // kv: without memory, which each rank has for itself.
  Result<Logits> forward(const Batch& batch, const KvView&,
                         std::span<const VariantWeights* const> slots) override {
    return transformer_->forward(batch, slots);
  }
  // Rank 0 samples, if the ranks' logits can be brought to it.
  int32_t most_sampled_top() const override {
    return backend_.communicator(0).collects() ? backend_.backend(0).ops().most_sampled_top() : -1;
  }
  Result<std::vector<SampleOutcome>> forward_sampled(
      const Batch& batch, const KvView&, std::span<const VariantWeights* const> slots,
      std::span<const SampleRequest> wanted, const std::function<void()>& meanwhile) override {
    return transformer_->forward_sampled(batch, slots, wanted, meanwhile);
  }
  bool roles_differ() const override { return backend_.backend(0).ops().roles_differ(); }
  KvSwap* kv_swap() override { return swap_.get(); }
  int32_t host_blocks() const override { return host_blocks_; }
  size_t workspace_bytes() const override { return transformer_->workspace_bytes(); }
  int32_t max_slots() const override {
    int32_t least = backend_.backend(0).ops().max_slots();
    for (int r = 1; r < backend_.ranks(); ++r)
      least = std::min(least, backend_.backend(r).ops().max_slots());
    return least;
  }
  void parallel_for(int64_t n, void (*work)(void* context, int64_t i), void* context) override {
    backend_.backend(0).ops().parallel_for(n, work, context);
  }
  Status health() const override { return backend_.health(); }

 private:
  std::unique_ptr<ParallelTransformer> transformer_;
  ParallelBackend& backend_;
  const std::unique_ptr<KvSwap> swap_;
  const int32_t host_blocks_;
};

}  // namespace deltad
