// The weights of the Llama family: the one place that knows their names and shapes.
#include "model/weight_table.h"

#include <fmt/core.h>

#include <array>
#include <string_view>
#include <utility>

namespace deltad {
namespace {

class Builder {
 public:
  WeightId add(WeightKind kind, std::vector<WeightPart> parts, int64_t columns) {
    const WeightId id = static_cast<WeightId>(table_.specs.size());
    for (size_t part = 0; part < parts.size(); ++part)
      table_.by_name[parts[part].name] = {id, static_cast<int>(part)};
    table_.specs.push_back({.kind = kind, .parts = std::move(parts), .columns = columns});
    return id;
  }
  WeightId vector(std::string name, int64_t rows) {
    return add(WeightKind::kVector, {{std::move(name), rows}}, 1);
  }
  WeightSpec& spec(WeightId id) { return table_.specs[static_cast<size_t>(id)]; }
  WeightTable& table() { return table_; }

 private:
  WeightTable table_;
};

constexpr std::array<std::string_view, 7> kBlockMatrices = {
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};

// The weights of block `i`.
LayerWeights add_layer(Builder* builder, const ModelConfig& config, int64_t i) {
  const int64_t hidden = config.hidden, inner = config.intermediate;
  const int64_t q_rows = config.heads * config.head_dim;
  const int64_t kv_rows = config.kv_heads * config.head_dim;
  const std::string block = fmt::format("model.layers.{}.", i);
  LayerWeights layer;
  layer.attention_norm = builder->vector(block + "input_layernorm.weight", hidden);
  layer.qkv = builder->add(WeightKind::kMatrix,
                           {{block + "self_attn.q_proj.weight", q_rows},
                            {block + "self_attn.k_proj.weight", kv_rows},
                            {block + "self_attn.v_proj.weight", kv_rows}},
                           hidden);
  layer.attention_out =
      builder->add(WeightKind::kMatrix, {{block + "self_attn.o_proj.weight", hidden}}, q_rows);
  layer.mlp_norm = builder->vector(block + "post_attention_layernorm.weight", hidden);
  layer.gate_up = builder->add(
      WeightKind::kMatrix,
      {{block + "mlp.gate_proj.weight", inner}, {block + "mlp.up_proj.weight", inner}}, hidden);
  builder->spec(layer.gate_up).interleaved = true;
  layer.down = builder->add(WeightKind::kMatrix, {{block + "mlp.down_proj.weight", hidden}}, inner);
  return layer;
}

}  // namespace

WeightTable make_weight_table(const ModelConfig& config) {
  const int64_t hidden = config.hidden;

  Builder builder;
  WeightTable& table = builder.table();
  table.head_dim = config.head_dim;
  table.embedding =
      builder.add(WeightKind::kEmbedding, {{"model.embed_tokens.weight", config.vocab}}, hidden);
  for (int64_t i = 0; i < config.layers; ++i)
    table.layers.push_back(add_layer(&builder, config, i));
  table.final_norm = builder.vector("model.norm.weight", hidden);
  table.head = builder.add(WeightKind::kMatrix, {{"lm_head.weight", config.vocab}}, hidden);
  if (config.tied_head) builder.spec(table.head).alias = table.embedding;
  return std::move(table);
}

WeightTable make_layer_table(const ModelConfig& config, int64_t layer) {
  Builder builder;
  WeightTable& table = builder.table();
  table.head_dim = config.head_dim;
  table.embedding = table.head = -1;
  table.layers.push_back(add_layer(&builder, config, layer));
  table.final_norm = builder.vector("model.norm.weight", config.hidden);
  return std::move(table);
}

bool is_block_matrix(const std::string& hf_name) {
  // model.layers.N.KIND.weight
  constexpr std::string_view kBefore = "model.layers.", kAfter = ".weight";
  std::string_view rest = hf_name;
  if (!rest.starts_with(kBefore) || !rest.ends_with(kAfter)) return false;
  rest.remove_prefix(kBefore.size());
  const size_t digits = rest.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos || rest[digits] != '.') return false;
  rest.remove_prefix(digits + 1);
  for (std::string_view kind : kBlockMatrices)
    if (rest.size() == kind.size() + kAfter.size() && rest.starts_with(kind)) return true;
  return false;
}

}  // namespace deltad
