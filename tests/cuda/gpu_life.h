// What happens on a GPU from start to end, small: a base, steps of prompts with and without
// logits, steps of generated rows often enough to become a graph, variants that come, are used by a
// step that nobody waits for, leave for the host's memory, come back and go, a sequence that is set
// back and returns. The tests of failures and of order break it in every place.
#pragma once

#include <memory>
#include <vector>

#include "tests/cuda/emulated_world.h"

namespace deltad::testing {

class GpuLife {
 public:
  static constexpr size_t kHostBytes = 1 << 20;
  // All of it; the first error ends it. Logits of its steps, one after the other.
  Result<std::vector<float>> run() {
    RETURN_IF_ERROR(begin());
    RETURN_IF_ERROR(enter(0, kOneLevel));
    // Prompts of the base and of the variant, in pieces.
    for (int32_t at = 0; at < 10; at += 2) RETURN_IF_ERROR(prompt(at, 2, at == 8));
    RETURN_IF_ERROR(generate(10, 2));
    RETURN_IF_ERROR(prompt(12, 1, false));
    RETURN_IF_ERROR(set_aside(0));  // while that step may still run
    RETURN_IF_ERROR(come_back(0));
    RETURN_IF_ERROR(enter(1, kLowRank));
    RETURN_IF_ERROR(generate(12, 1));
    RETURN_IF_ERROR(prompt(13, 2, false));
    variants_[1] = nullptr;  // while its step may still run
    // So may the base's sequence be set back; the variant's gets its block, and it another.
    RETURN_IF_ERROR(swap_->to_host(std::vector<KvBlockCopy>{{0, 1}}));
    blocks_[1][1] = 0;
    blocks_[0][0] = 6;
    RETURN_IF_ERROR(swap_->to_device(std::vector<KvBlockCopy>{{6, 1}}));
    RETURN_IF_ERROR(enter(1, kTwoLevels));
    RETURN_IF_ERROR(prompt(15, 2, true));
    RETURN_IF_ERROR(sample(17));
    // Nobody waits for these, nor for the copy between them.
    RETURN_IF_ERROR(prompt(18, 1, false));
    RETURN_IF_ERROR(swap_->to_host(std::vector<KvBlockCopy>{{6, 0}}));
    RETURN_IF_ERROR(prompt(19, 1, false));
    return logits_;
  }
  // What the device is said to hold.
  size_t accounted() const {
    size_t bytes = base_->backend->weight_bytes() + base_->backend->workspace_bytes();
    if (transformer_) bytes += transformer_->workspace_bytes() + kv_.bytes();
    for (const VariantRef& variant : variants_)
      if (variant && variant->weights) bytes += variant->weights->bytes();
    return bytes;
  }
  Backend* backend() { return base_ ? base_->backend.get() : nullptr; }

  Status begin() {
    ASSIGN_OR_RETURN(base_, load_on_cuda("llama"));
    RETURN_IF_ERROR(base_->backend->reserve_host(kHostBytes).status());
    ASSIGN_OR_RETURN(transformer_,
                     Transformer::make(base_->config(), base_->table, *base_->backend, 8, 32));
    const int64_t block = base_->backend->ops().kv_block_bytes(transformer_->attention_shape(), 16);
    ASSIGN_OR_RETURN(
        kv_, base_->backend->allocate(static_cast<size_t>(base_->config().layers * 7 * block)));
    view_ = {kv_.data(), 7, 16, block};
    ASSIGN_OR_RETURN(swap_, base_->backend->new_kv_swap(view_, base_->config().layers, 2));
    variants_.resize(2);
    return {};
  }
  Status enter(size_t slot, const char* path) {
    ASSIGN_OR_RETURN(variants_[slot], load_golden_variant(*base_, path));
    return {};
  }
  void leave(size_t slot) { variants_[slot] = nullptr; }
  // To the host's memory, and off the device.
  Status set_aside(size_t slot) {
    ASSIGN_OR_RETURN(variants_[slot], copy_to_host(*variants_[slot]));
    return {};
  }
  // From there; what lay there is free.
  Status come_back(size_t slot) {
    const std::atomic<bool> cancelled{false};
    ASSIGN_OR_RETURN(variants_[slot],
                     restore_variant(*variants_[slot], *base_->backend, cancelled));
    return {};
  }
  // Whether steps have rows of the variants that are there, or the base's alone.
  void batch_variants(bool yes) { batches_variants_ = yes; }
  const ModelConfig& config() const { return base_->config(); }
  // Rows at positions [first, first + count) of each sequence: the base's and the variants'.
  Status prompt(int32_t first, int32_t count, bool logits) {
    return step(first, count, false, logits ? Wants::kLogits : Wants::kNothing);
  }
  Status generate(int32_t first, int32_t steps) {
    for (int32_t i = 0; i < steps; ++i) RETURN_IF_ERROR(step(first + i, 1, true, Wants::kLogits));
    return {};
  }
  // The same, but for tokens that the device chooses; they stand among the logits.
  Status sample(int32_t first) { return step(first, 1, true, Wants::kTokens); }

 private:
  enum class Wants { kNothing, kLogits, kTokens };
  Status step(int32_t first, int32_t count, bool generated, Wants wants) {
    Batch batch;
    std::vector<const VariantWeights*> slots;
    for (int32_t s = 0; s < 3; ++s) {
      const VariantRef variant = s == 0 ? nullptr : variants_[static_cast<size_t>(s - 1)];
      if (s > 0 && (!variant || !batches_variants_)) continue;
      const auto row = static_cast<int32_t>(batch.ids.size());
      if (s > 0) slots.push_back(variant->weights.get());
      batch.groups.push_back({row, row + count, static_cast<int32_t>(slots.size()) - 1});
      batch.spans.push_back({row, row + count, first, blocks_[s], generated});
      for (int32_t i = 0; i < count; ++i) batch.ids.push_back(37 * (s + 1) + 11 * (first + i));
      if (wants != Wants::kNothing) batch.logit_rows.push_back(row + count - 1);
    }
    if (wants == Wants::kTokens) {
      std::vector<SampleRequest> greedy(batch.logit_rows.size());
      for (SampleRequest& request : greedy) {
        request.temperature = 0;
        request.top = 1;
      }
      ASSIGN_OR_RETURN(const auto tokens,
                       transformer_->forward_sampled(batch, view_, slots, greedy, nullptr));
      for (const SampleOutcome& outcome : tokens)
        logits_.insert(logits_.end(), {static_cast<float>(outcome.token), outcome.logprob});
      return {};
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
  std::unique_ptr<KvSwap> swap_;
  int32_t blocks_[3][2] = {{0, 3}, {4, 1}, {2, 5}};
  std::vector<VariantRef> variants_;
  bool batches_variants_ = true;
  std::vector<float> logits_;
};

}  // namespace deltad::testing
