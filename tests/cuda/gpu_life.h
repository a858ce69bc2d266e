// What happens on a GPU from start to end, small: a base, steps of prompts with and without
// logits, steps of generated rows often enough to become a graph, variants that come, are used by a
// step that nobody waits for, and go. The tests of failures and of order break it in every place.
#pragma once

#include <memory>
#include <vector>

#include "tests/cuda/emulated_world.h"

namespace deltad::testing {

class GpuLife {
 public:
  // All of it; the first error ends it. Logits of its steps, one after the other.
  Result<std::vector<float>> run() {
    RETURN_IF_ERROR(begin());
    RETURN_IF_ERROR(enter(0, kOneLevel));
    // Prompts of the base and of the variant, in pieces.
    for (int32_t at = 0; at < 10; at += 2) RETURN_IF_ERROR(prompt(at, 2, at == 8));
    RETURN_IF_ERROR(generate(10, 2));
    RETURN_IF_ERROR(enter(1, kLowRank));
    RETURN_IF_ERROR(generate(12, 1));
    RETURN_IF_ERROR(prompt(13, 2, false));
    variants_[1] = nullptr;  // while its step may still run
    RETURN_IF_ERROR(enter(1, kTwoLevels));
    RETURN_IF_ERROR(prompt(15, 2, true));
    RETURN_IF_ERROR(prompt(17, 1, false));  // nobody waits for it
    return logits_;
  }
  // What the device is said to hold.
  size_t accounted() const {
    size_t bytes = base_->backend->weight_bytes() + base_->backend->workspace_bytes();
    if (transformer_) bytes += transformer_->workspace_bytes() + kv_.bytes();
    for (const VariantRef& variant : variants_)
      if (variant) bytes += variant->weights->bytes();
    return bytes;
  }
  Backend* backend() { return base_ ? base_->backend.get() : nullptr; }

  Status begin() {
    ASSIGN_OR_RETURN(base_, load_on_cuda("llama"));
    ASSIGN_OR_RETURN(transformer_,
                     Transformer::make(base_->config(), base_->table, *base_->backend, 8, 32));
    const int64_t block = base_->backend->ops().kv_block_bytes(transformer_->attention_shape(), 16);
    ASSIGN_OR_RETURN(
        kv_, base_->backend->allocate(static_cast<size_t>(base_->config().layers * 6 * block)));
    view_ = {kv_.data(), 6, 16, block};
    variants_.resize(2);
    return {};
  }
  Status enter(size_t slot, const char* path) {
    ASSIGN_OR_RETURN(variants_[slot], load_golden_variant(*base_, path));
    return {};
  }
  void leave(size_t slot) { variants_[slot] = nullptr; }
  // Whether steps have rows of the variants that are there, or the base's alone.
  void batch_variants(bool yes) { batches_variants_ = yes; }
  const ModelConfig& config() const { return base_->config(); }
  // Rows at positions [first, first + count) of each sequence: the base's and the variants'.
  Status prompt(int32_t first, int32_t count, bool logits) {
    return step(first, count, false, logits);
  }
  Status generate(int32_t first, int32_t steps) {
    for (int32_t i = 0; i < steps; ++i) RETURN_IF_ERROR(step(first + i, 1, true, true));
    return {};
  }

 private:
  Status step(int32_t first, int32_t count, bool generated, bool logits) {
    static const int32_t blocks[3][2] = {{0, 3}, {4, 1}, {2, 5}};
    Batch batch;
    std::vector<const VariantWeights*> slots;
    for (int32_t s = 0; s < 3; ++s) {
      const VariantRef variant = s == 0 ? nullptr : variants_[static_cast<size_t>(s - 1)];
      if (s > 0 && (!variant || !batches_variants_)) continue;
      const auto row = static_cast<int32_t>(batch.ids.size());
      if (s > 0) slots.push_back(variant->weights.get());
      batch.groups.push_back({row, row + count, static_cast<int32_t>(slots.size()) - 1});
      batch.spans.push_back({row, row + count, first, blocks[s], generated});
      for (int32_t i = 0; i < count; ++i) batch.ids.push_back(37 * (s + 1) + 11 * (first + i));
      if (logits) batch.logit_rows.push_back(row + count - 1);
    }
    ASSIGN_OR_RETURN(const Logits out, transformer_->forward(batch, view_, slots));
    for (size_t r = 0; r < out.vocab.size(); ++r) {
      const float* row = out.values.row<float>(static_cast<int64_t>(r));
      logits_.insert(logits_.end(), row, row + out.vocab[r]);
    }
    return {};
  }

  std::unique_ptr<BaseModel> base_;
  std::unique_ptr<Transformer> transformer_;
  Buffer kv_;
  KvView view_{};
  std::vector<VariantRef> variants_;
  bool batches_variants_ = true;
  std::vector<float> logits_;
};

}  // namespace deltad::testing
