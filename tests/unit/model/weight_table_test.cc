// WeightTable: names, shapes and places of the Llama family's weights.
#include "model/weight_table.h"

#include <gtest/gtest.h>

#include <utility>

namespace deltad {
namespace {

ModelConfig awkward() {
  ModelConfig config;
  config.hidden = 72;
  config.layers = 3;
  config.heads = 3;
  config.kv_heads = 1;
  config.head_dim = 24;
  config.intermediate = 100;
  config.vocab = 509;
  return config;
}

const WeightSpec& spec(const WeightTable& table, WeightId id) {
  return table.specs[static_cast<size_t>(id)];
}

TEST(WeightTable, HoldsEveryTensorOfEveryBlock) {
  const WeightTable table = make_weight_table(awkward());
  EXPECT_EQ(table.layers.size(), 3u);
  EXPECT_EQ(table.by_name.size(), 3u * 9 + 3);
  EXPECT_EQ(table.specs.size(), 3u * 6 + 3);
  for (const auto& [name, place] : table.by_name)
    EXPECT_EQ(spec(table, place.weight).parts[static_cast<size_t>(place.part)].name, name);
}

TEST(WeightTable, FusesQkvWithPartsPaddedTo16) {
  const WeightTable table = make_weight_table(awkward());
  const WeightSpec& qkv = spec(table, table.layers[1].qkv);
  EXPECT_EQ(qkv.kind, WeightKind::kMatrix);
  EXPECT_EQ(qkv.columns, 72);
  EXPECT_FALSE(qkv.interleaved);
  ASSERT_EQ(qkv.parts.size(), 3u);
  EXPECT_EQ(qkv.parts[0].rows, 72);
  EXPECT_EQ(qkv.parts[2].rows, 24);
  EXPECT_EQ(qkv.part_offset(1), 80);
  EXPECT_EQ(qkv.part_offset(2), 112);
  EXPECT_EQ(qkv.rows(), 144);
  const auto place = table.by_name.at("model.layers.1.self_attn.v_proj.weight");
  EXPECT_EQ(place.weight, table.layers[1].qkv);
  EXPECT_EQ(place.part, 2);
}

TEST(WeightTable, InterleavesGateAndUp) {
  const WeightTable table = make_weight_table(awkward());
  const WeightSpec& gate_up = spec(table, table.layers[0].gate_up);
  EXPECT_TRUE(gate_up.interleaved);
  EXPECT_EQ(gate_up.parts[0].name, "model.layers.0.mlp.gate_proj.weight");
  EXPECT_EQ(gate_up.parts[1].name, "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(gate_up.parts[1].rows, 100);
  EXPECT_EQ(spec(table, table.layers[0].down).columns, 100);
  EXPECT_EQ(spec(table, table.layers[0].attention_out).columns, 72);
  const WeightSpec& norm = spec(table, table.layers[2].mlp_norm);
  EXPECT_EQ(norm.kind, WeightKind::kVector);
  EXPECT_EQ(norm.columns, 1);
  EXPECT_EQ(norm.parts[0].name, "model.layers.2.post_attention_layernorm.weight");
}

TEST(WeightTable, ATiedHeadIsAnAliasOfTheEmbedding) {
  ModelConfig config = awkward();
  EXPECT_EQ(spec(make_weight_table(config), make_weight_table(config).head).alias, -1);
  config.tied_head = true;
  const WeightTable table = make_weight_table(config);
  EXPECT_EQ(spec(table, table.head).alias, table.embedding);
  EXPECT_EQ(spec(table, table.head).kind, WeightKind::kMatrix);
  EXPECT_EQ(spec(table, table.embedding).kind, WeightKind::kEmbedding);
  EXPECT_EQ(table.by_name.at("lm_head.weight").weight, table.head);
}

TEST(WeightTable, OneLayerIsThatLayerOfTheWhole) {
  const WeightTable whole = make_weight_table(awkward());
  for (const int64_t layer : {0, 2}) {
    const WeightTable one = make_layer_table(awkward(), layer);
    ASSERT_EQ(one.layers.size(), 1u);
    EXPECT_EQ(one.specs.size(), 6u + 1);
    EXPECT_EQ(one.by_name.size(), 9u + 1);
    const LayerWeights &mine = one.layers[0], &theirs = whole.layers[static_cast<size_t>(layer)];
    for (const auto& [a, b] : {std::pair{mine.attention_norm, theirs.attention_norm},
                               {mine.qkv, theirs.qkv},
                               {mine.attention_out, theirs.attention_out},
                               {mine.mlp_norm, theirs.mlp_norm},
                               {mine.gate_up, theirs.gate_up},
                               {mine.down, theirs.down},
                               {one.final_norm, whole.final_norm}}) {
      const WeightSpec &x = spec(one, a), &y = spec(whole, b);
      EXPECT_EQ(x.kind, y.kind);
      EXPECT_EQ(x.columns, y.columns);
      EXPECT_EQ(x.interleaved, y.interleaved);
      ASSERT_EQ(x.parts.size(), y.parts.size());
      for (size_t p = 0; p < x.parts.size(); ++p) {
        EXPECT_EQ(x.parts[p].name, y.parts[p].name);
        EXPECT_EQ(x.parts[p].rows, y.parts[p].rows);
      }
    }
  }
}

TEST(WeightTable, KnowsBlockMatrices) {
  for (const auto& [name, place] : make_weight_table(awkward()).by_name)
    EXPECT_EQ(is_block_matrix(name), name.find("_proj") != std::string::npos) << name;
  for (const char* name :
       {"model.layers.0.self_attn.q_proj.bias", "model.layers.x.self_attn.q_proj.weight",
        "model.layers..self_attn.q_proj.weight", "model.layers.0.self_attn.q_proj", "",
        "model.layers.0.mlp.q_proj.weight", "model.layers.12", "model.layers.0.weight",
        "a.model.layers.0.self_attn.q_proj.weight", "lm_head.weight"})
    EXPECT_FALSE(is_block_matrix(name)) << name;
  EXPECT_TRUE(is_block_matrix("model.layers.123.mlp.down_proj.weight"));
}

}  // namespace
}  // namespace deltad
