// TransformerRunner: the model as the engine sees it, on a real backend. Owned by the engine.
#pragma once

#include <memory>
#include <utility>

#include "backend/backend.h"
#include "engine/model_runner.h"

namespace deltad {

class TransformerRunner final : public ModelRunner {
 public:
  TransformerRunner(std::unique_ptr<Transformer> transformer, Backend& backend)
      : transformer_(std::move(transformer)), backend_(backend) {}

  Result<Logits> forward(const Batch& batch, const KvView& kv,
                         std::span<const VariantWeights* const> slots) override {
    return transformer_->forward(batch, kv, slots);
  }
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
};

}  // namespace deltad
