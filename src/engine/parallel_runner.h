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
  ParallelRunner(std::unique_ptr<ParallelTransformer> transformer, ParallelBackend& backend)
      : transformer_(std::move(transformer)), backend_(backend) {}

  // kv: without memory, which each rank has for itself.
  Result<Logits> forward(const Batch& batch, const KvView&,
                         std::span<const VariantWeights* const> slots) override {
    return transformer_->forward(batch, slots);
  }
  bool roles_differ() const override { return backend_.backend(0).ops().roles_differ(); }
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
};

}  // namespace deltad
