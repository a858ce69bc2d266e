// TransformerRunner: the model as the engine sees it, on a real backend. Owned by the engine.
#pragma once

#include <memory>
#include <utility>

#include "backend/backend.h"
#include "engine/model_runner.h"

namespace deltad {

class TransformerRunner final : public ModelRunner {
 public:
  // swap: null, or of host_blocks blocks.
  TransformerRunner(std::unique_ptr<Transformer> transformer, Backend& backend,
                    std::unique_ptr<KvSwap> swap = nullptr, int32_t host_blocks = 0)
      : transformer_(std::move(transformer)),
        backend_(backend),
        swap_(std::move(swap)),
        host_blocks_(host_blocks) {}

  Result<Logits> forward(const Batch& batch, const KvView& kv,
                         std::span<const VariantWeights* const> slots) override {
    return transformer_->forward(batch, kv, slots);
  }
  bool roles_differ() const override { return backend_.ops().roles_differ(); }
  int32_t most_sampled_top() const override { return backend_.ops().most_sampled_top(); }
  Result<std::vector<SampleOutcome>> forward_sampled(
      const Batch& batch, const KvView& kv, std::span<const VariantWeights* const> slots,
      std::span<const SampleRequest> wanted, const std::function<void()>& meanwhile) override {
    return transformer_->forward_sampled(batch, kv, slots, wanted, meanwhile);
  }
  KvSwap* kv_swap() override { return swap_.get(); }
  int32_t host_blocks() const override { return host_blocks_; }
  Status health() const override { return backend_.health(); }
  size_t workspace_bytes() const override {
    return transformer_->workspace_bytes() + backend_.workspace_bytes();
  }
  int32_t max_slots() const override { return backend_.ops().max_slots(); }
  void parallel_for(int64_t n, void (*work)(void* context, int64_t i), void* context) override {
    backend_.ops().parallel_for(n, work, context);
  }

 private:
  std::unique_ptr<Transformer> transformer_;
  Backend& backend_;
  const std::unique_ptr<KvSwap> swap_;
  const int32_t host_blocks_;
};

}  // namespace deltad
