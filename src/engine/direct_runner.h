// DirectRunner: a fixed set of sequences, stepped straight on the transformer with a cache of their
// own and without scheduling. For tools that look at the model itself (deltactl logits and bench)
// and for tests. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "delta/variant.h"
#include "model/transformer.h"

namespace deltad {

class DirectRunner {
 public:
  // variants[s] is the variant of sequence s (null: the base); sequences of one variant stand
  // together. max_tokens: the longest any sequence gets; max_rows: rows of one step.
  static Result<std::unique_ptr<DirectRunner>> make(const ModelConfig& config,
                                                    const WeightTable& table, Backend& backend,
                                                    std::vector<VariantRef> variants,
                                                    int64_t max_tokens, int64_t max_rows);

  // Appends ids (at most max_rows) to one sequence. Logits of the last row, or of all. Valid until
  // the next step.
  Result<Logits> append(int sequence, std::span<const int32_t> ids, bool all_logits,
                        const Transformer::Observer* observer = nullptr);
  // One step with one more token of every sequence; logits of each, in order.
  Result<Logits> step(std::span<const int32_t> ids);
  // Forgets all tokens.
  void reset();

  int64_t length(int sequence) const { return lengths_[static_cast<size_t>(sequence)]; }

 private:
  DirectRunner() = default;

  std::unique_ptr<Transformer> transformer_;
  Buffer cache_;
  KvView kv_{};
  std::vector<std::vector<int32_t>> blocks_;  // KV blocks of each sequence
  std::vector<int32_t> lengths_;              // tokens in the cache
  std::vector<VariantRef> variants_;          // keeps them alive
  std::vector<int32_t> slots_;                // of each sequence
  std::vector<const VariantWeights*> bound_;  // by slot
};

// The index of the largest of the first `vocab` logits of a row, the lowest of equals.
int32_t greedy_token(const Logits& logits, int64_t row);

}  // namespace deltad
