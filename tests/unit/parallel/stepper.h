// Stepper: a model on one rank or on several, driven step by step without an engine: the same
// batches for both.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "delta/loader.h"
#include "engine/base_model.h"
#include "engine/parallel_runner.h"
#include "engine/transformer_runner.h"

namespace deltad::testing {

inline std::unique_ptr<BaseModel> load_on_ranks(const std::string& path, int ranks,
                                                const std::string& isa) {
  CpuBackendOptions cpu;
  cpu.threads = 2;
  cpu.pin = false;
  cpu.isa = isa;
  auto base = load_base_model(path, cpu, nullptr, {ranks, std::chrono::seconds(600)});
  EXPECT_TRUE(base.ok()) << base.status().message();
  return base.ok() ? std::move(*base) : nullptr;
}

inline VariantRef load_variant_of(const BaseModel& base, const std::string& path) {
  VariantLoadOptions options;
  options.base_digest = base.digest;
  options.architecture = base.config().architecture;
  const auto variant = load_variant("variant", path, base.table, base.weights(), options);
  EXPECT_TRUE(variant.ok()) << path << ": " << variant.status().message();
  return variant.ok() ? *variant : nullptr;
}

class Stepper {
 public:
  static constexpr int32_t kBlockTokens = 16, kBlocksEach = 6;
  static constexpr int64_t kRows = 96;

  Stepper(const BaseModel& base, int sequences) {
    const int32_t blocks = kBlocksEach * sequences;
    const int64_t positions = kBlockTokens * kBlocksEach;
    for (int32_t b = 0; b < blocks; ++b) blocks_.push_back(blocks - 1 - b);
    if (base.parallel) {
      auto made = ParallelTransformer::make(base.config(), *base.parallel,
                                            std::chrono::seconds(600), kRows, positions);
      EXPECT_TRUE(made.ok()) << made.status().message();
      EXPECT_TRUE((*made)->allocate_kv(blocks, kBlockTokens).ok());
      runner_ = std::make_unique<ParallelRunner>(std::move(*made), *base.parallel);
      return;
    }
    auto made = Transformer::make(base.config(), base.table, *base.backend, kRows, positions);
    EXPECT_TRUE(made.ok()) << made.status().message();
    const int64_t bytes =
        base.backend->ops().kv_block_bytes((*made)->attention_shape(), kBlockTokens);
    auto memory =
        base.backend->allocate(static_cast<size_t>(base.config().layers * blocks * bytes));
    EXPECT_TRUE(memory.ok());
    memory_ = std::move(*memory);
    kv_ = {memory_.data(), blocks, kBlockTokens, bytes};
    runner_ = std::make_unique<TransformerRunner>(std::move(*made), *base.backend);
  }

  const int32_t* blocks_of(int sequence) const { return blocks_.data() + sequence * kBlocksEach; }
  ModelRunner& runner() { return *runner_; }
  Result<Logits> forward(const Batch& batch, const std::vector<const VariantWeights*>& slots) {
    return runner_->forward(batch, kv_, slots);
  }
  Result<std::vector<SampleOutcome>> forward_sampled(
      const Batch& batch, const std::vector<const VariantWeights*>& slots,
      const std::vector<SampleRequest>& wanted, const std::function<void()>& meanwhile = nullptr) {
    return runner_->forward_sampled(batch, kv_, slots, wanted, meanwhile);
  }

 private:
  std::vector<int32_t> blocks_;
  Buffer memory_;
  KvView kv_{};
  std::unique_ptr<ModelRunner> runner_;
};

// One sequence a variant (null: the base), all in each step: prompts of different lengths in chunks
// of 7 beside sequences that have gone on to single tokens; some steps ask for the logits of all
// rows, others for the last ones. The tokens do not depend on the logits.
inline std::vector<std::vector<float>> run_mixed(const BaseModel& base,
                                                 const std::vector<VariantRef>& variants,
                                                 int steps) {
  Stepper stepper(base, static_cast<int>(variants.size()));
  std::vector<const VariantWeights*> slots;
  for (const VariantRef& variant : variants)
    if (variant) slots.push_back(variant->weights.get());
  std::vector<int32_t> lengths(variants.size());
  std::vector<std::vector<float>> rows;
  for (int step = 0; step < steps; ++step) {
    Batch batch;
    int32_t slot = 0;
    for (size_t s = 0; s < variants.size(); ++s) {
      const auto prompt = static_cast<int32_t>(5 + 6 * (s % 5));
      const int32_t vocab =
          static_cast<int32_t>(variants[s] ? variants[s]->vocab : base.config().vocab);
      const int32_t count = std::max(1, std::min(7, prompt - lengths[s]));
      const auto first = static_cast<int32_t>(batch.ids.size());
      for (int32_t i = 0; i < count; ++i)
        batch.ids.push_back((37 * static_cast<int32_t>(s) + 101 * (lengths[s] + i) + vocab - 1) %
                            vocab);
      batch.groups.push_back({first, first + count, variants[s] ? slot++ : kBaseSlot});
      batch.spans.push_back({first, first + count, lengths[s],
                             stepper.blocks_of(static_cast<int>(s)), lengths[s] >= prompt});
      for (int32_t i = step % 2 == 0 ? 0 : count - 1; i < count; ++i)
        batch.logit_rows.push_back(first + i);
      lengths[s] += count;
    }
    const auto logits = stepper.forward(batch, slots);
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    if (!logits.ok()) return rows;
    for (size_t r = 0; r < batch.logit_rows.size(); ++r) {
      const float* row = logits->values.row<float>(static_cast<int64_t>(r));
      rows.emplace_back(row, row + logits->vocab[r]);
    }
  }
  return rows;
}

}  // namespace deltad::testing
