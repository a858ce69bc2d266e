// What the base, a variant, the KV cache and a step's buffers take in memory, from the model's
// shape alone. The layouts are those of the CPU backend; docs/sizing.md has the formulas, and a
// test compares them with what that backend allocates. Pure.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "model/config.h"

namespace deltad {

// What of a variant is stored whole: as little as the blocks' matrices alone, up to a fine-tune
// that changed its embeddings and head too.
enum class DenseTensors { kNone, kNorms, kAll };

struct VariantShape {
  int64_t levels = 1;  // of signs; 0 for a LoRA adapter
  int64_t rank = 0;    // of factors of every matrix in the blocks: an adapter's, or beside signs
  DenseTensors dense = DenseTensors::kNorms;
};

// The part of the model that one of `ways` GPUs holds (parallel/shard_map): heads, the MLP and the
// vocabulary are cut, norms are on all. Of each the largest share, where they are not equal.
// kInvalidArgument if the model is not enough for so many.
Result<ModelConfig> tensor_parallel_part(const ModelConfig& model, int64_t ways);

struct VariantBytes {
  int64_t resident = 0;  // in memory
  int64_t read = 0;      // of it, by a step that generates: all but the embeddings
};

int64_t base_bytes(const ModelConfig& part);
// What a step reads of the base: all, but of embeddings that are not also the head only a row each.
int64_t base_bytes_read(const ModelConfig& part);
VariantBytes variant_bytes(const ModelConfig& part, const VariantShape& shape);

constexpr int64_t kPlanBlockTokens = 16;
int64_t kv_block_bytes(const ModelConfig& part);  // of all layers

// The activations of a step of `rows` rows, logits for `logit_rows` of them and the table of
// rotations. activation_bytes: 2 for bf16, 4 for fp32. ways: GPUs that add up their parts of sums.
int64_t workspace_bytes(const ModelConfig& part, int64_t rows, int64_t logit_rows,
                        int64_t activation_bytes, int64_t ways = 1);

}  // namespace deltad
