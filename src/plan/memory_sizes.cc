#include "plan/memory_sizes.h"

#include <algorithm>

#include "model/weight_table.h"
#include "parallel/shard_map.h"

namespace deltad {
namespace {

constexpr int64_t kPage = 4096;

int64_t up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// A piece of memory begins at a multiple of a cache line.
int64_t piece(int64_t bytes) { return up(bytes, 64); }

// A weight's rows with the padding between fused parts and after the last one.
int64_t dense_bytes(const WeightSpec& spec) {
  if (spec.kind == WeightKind::kVector) return piece(4 * spec.rows());
  return piece(2 * spec.rows() * up(spec.columns, 4));
}

int64_t sign_bytes(const WeightSpec& spec) {  // of one level: signs, and α of each row
  return piece(spec.rows() * up(spec.columns, 4) / 8) + piece(4 * spec.rows());
}

int64_t low_rank_bytes(const WeightSpec& spec, int64_t rank) {
  constexpr int64_t kPartBytes = 40;  // where the factors of a part lie
  const auto parts = static_cast<int64_t>(spec.parts.size());
  return piece(parts * kPartBytes) + piece(4 * parts * rank) +
         piece(2 * parts * rank * up(spec.columns, 32)) + piece(2 * spec.rows() * up(rank, 2));
}

bool in_block(const WeightSpec& spec) { return is_block_matrix(spec.parts[0].name); }

}  // namespace

Result<ModelConfig> tensor_parallel_part(const ModelConfig& model, int64_t ways) {
  const auto ranks = static_cast<int>(std::clamp<int64_t>(ways, 0, kMostRanks + 1));
  ASSIGN_OR_RETURN(const ShardMap map, ShardMap::make(model, ranks));
  ModelConfig part = map.config(0);
  for (int r = 1; r < ranks; ++r) {
    const ModelConfig other = map.config(r);
    part.kv_heads = std::max(part.kv_heads, other.kv_heads);
    part.heads = std::max(part.heads, other.heads);
    part.intermediate = std::max(part.intermediate, other.intermediate);
    part.vocab = std::max(part.vocab, other.vocab);
  }
  return part;
}

int64_t base_bytes(const ModelConfig& part) {
  int64_t bytes = 0;
  for (const WeightSpec& spec : make_weight_table(part).specs)
    if (spec.alias < 0) bytes += dense_bytes(spec);
  return up(bytes, kPage);
}

int64_t base_bytes_read(const ModelConfig& part) {
  const WeightTable table = make_weight_table(part);
  const int64_t embedding =
      part.tied_head ? 0 : dense_bytes(table.specs[static_cast<size_t>(table.embedding)]);
  return base_bytes(part) - embedding;
}

VariantBytes variant_bytes(const ModelConfig& part, const VariantShape& shape) {
  VariantBytes out;
  for (const WeightSpec& spec : make_weight_table(part).specs) {
    int64_t bytes = 0;
    if (in_block(spec)) {
      bytes = shape.levels * sign_bytes(spec);
      if (shape.rank > 0) bytes += low_rank_bytes(spec, shape.rank);
    } else if (spec.kind == WeightKind::kVector ? shape.dense != DenseTensors::kNone
                                                : shape.dense == DenseTensors::kAll) {
      if (spec.alias < 0) bytes = dense_bytes(spec);
    }
    out.resident += bytes;
    if (spec.kind != WeightKind::kEmbedding || part.tied_head) out.read += bytes;
  }
  out.resident = up(out.resident, kPage);
  return out;
}

int64_t kv_block_bytes(const ModelConfig& part) {
  const int64_t a_position = part.head_dim + up(part.head_dim, 16);  // keys, and padded values
  return part.layers * part.kv_heads * kPlanBlockTokens * a_position * 2;
}

int64_t workspace_bytes(const ModelConfig& part, int64_t rows, int64_t logit_rows,
                        int64_t activation_bytes, int64_t ways) {
  const int64_t hidden = up(part.hidden, 32), attended = up(part.heads * part.head_dim, 32);
  const WeightTable table = make_weight_table(part);
  const int64_t qkv = table.specs[static_cast<size_t>(table.layers.at(0).qkv)].rows();
  const int64_t a_row = 4 * ((ways > 1 ? 4 : 2) * hidden + qkv) +
                        activation_bytes * (hidden + attended + up(part.intermediate, 32));
  return rows * a_row + 4 * logit_rows * up(part.vocab, 16) +
         4 * part.max_positions * part.head_dim;
}

}  // namespace deltad
