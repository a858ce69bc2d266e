#include "engine/direct_runner.h"

#include <algorithm>

#include "base/check.h"

namespace deltad {
namespace {
constexpr int32_t kBlockTokens = 16;
}

Result<std::unique_ptr<DirectRunner>> DirectRunner::make(const ModelConfig& config,
                                                         const WeightTable& table, Backend& backend,
                                                         std::vector<VariantRef> variants,
                                                         int64_t max_tokens, int64_t max_rows) {
  std::unique_ptr<DirectRunner> made(new DirectRunner());
  const int64_t sequences = static_cast<int64_t>(variants.size());
  const int64_t each = (max_tokens + kBlockTokens - 1) / kBlockTokens;
  ASSIGN_OR_RETURN(made->transformer_,
                   Transformer::make(config, table, backend, std::max(max_rows, sequences),
                                     each * kBlockTokens));
  const int64_t block_bytes =
      backend.ops().kv_block_bytes(made->transformer_->attention_shape(), kBlockTokens);
  const int64_t blocks = sequences * each;
  ASSIGN_OR_RETURN(made->cache_,
                   backend.allocate(static_cast<size_t>(config.layers * blocks * block_bytes)));
  made->kv_ = {made->cache_.data(), static_cast<int32_t>(blocks), kBlockTokens, block_bytes};
  for (int64_t s = 0; s < sequences; ++s) {
    std::vector<int32_t> own(static_cast<size_t>(each));
    for (int64_t i = 0; i < each; ++i)
      own[static_cast<size_t>(i)] = static_cast<int32_t>(s * each + i);
    made->blocks_.push_back(std::move(own));
    const VariantRef& variant = variants[static_cast<size_t>(s)];
    int32_t slot = kBaseSlot;
    if (variant) {
      const auto at = std::find(made->bound_.begin(), made->bound_.end(), variant->weights.get());
      slot = static_cast<int32_t>(at - made->bound_.begin());
      if (at == made->bound_.end()) made->bound_.push_back(variant->weights.get());
    }
    made->slots_.push_back(slot);
  }
  if (static_cast<int64_t>(made->bound_.size()) > backend.ops().max_slots())
    return resource_exhausted("more variants than the backend has slots for one step");
  made->variants_ = std::move(variants);
  made->lengths_.assign(static_cast<size_t>(sequences), 0);
  return made;
}

Result<Logits> DirectRunner::append(int sequence, std::span<const int32_t> ids, bool all_logits,
                                    const Transformer::Observer* observer) {
  const size_t s = static_cast<size_t>(sequence);
  const int32_t n = static_cast<int32_t>(ids.size());
  CHECK(lengths_[s] + n <= static_cast<int32_t>(blocks_[s].size()) * kBlockTokens,
        "sequence too long");
  Batch batch;
  batch.ids.assign(ids.begin(), ids.end());
  batch.groups = {{0, n, slots_[s]}};
  batch.spans = {{0, n, lengths_[s], blocks_[s].data()}};
  for (int32_t r = all_logits ? 0 : n - 1; r < n; ++r) batch.logit_rows.push_back(r);
  auto logits = transformer_->forward(batch, kv_, bound_, observer);
  if (logits.ok()) lengths_[s] += n;
  return logits;
}

Result<Logits> DirectRunner::step(std::span<const int32_t> ids) {
  CHECK(ids.size() == lengths_.size(), "one token a sequence");
  Batch batch;
  batch.ids.assign(ids.begin(), ids.end());
  for (size_t s = 0; s < ids.size(); ++s) {
    const int32_t row = static_cast<int32_t>(s);
    CHECK(lengths_[s] < static_cast<int32_t>(blocks_[s].size()) * kBlockTokens,
          "sequence too long");
    if (batch.groups.empty() || batch.groups.back().slot != slots_[s])
      batch.groups.push_back({row, row, slots_[s]});
    batch.groups.back().end_row = row + 1;
    batch.spans.push_back({row, row + 1, lengths_[s], blocks_[s].data(), true});
    batch.logit_rows.push_back(row);
  }
  auto logits = transformer_->forward(batch, kv_, bound_);
  if (logits.ok())
    for (int32_t& length : lengths_) ++length;
  return logits;
}

void DirectRunner::reset() { std::fill(lengths_.begin(), lengths_.end(), 0); }

int32_t greedy_token(const Logits& logits, int64_t row) {
  const float* values = logits.values.row<float>(row);
  return static_cast<int32_t>(
      std::max_element(values, values + logits.vocab[static_cast<size_t>(row)]) - values);
}

}  // namespace deltad
