// WeightTable: which weights a model has, and which tensors of a checkpoint make up each of them.
// One table drives loading the base, loading variants and running the transformer. Plain data,
// immutable once built.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/weights.h"
#include "model/config.h"

namespace deltad {

// Weight ids of one transformer block.
struct LayerWeights {
  WeightId attention_norm;  // vector [H]
  WeightId
      qkv;  // fused q, k, v: parts of heads·head_dim, kv_heads·head_dim, kv_heads·head_dim rows
  WeightId attention_out;  // [H, heads·head_dim]
  WeightId mlp_norm;       // vector [H]
  WeightId gate_up;        // fused gate and up, tiles of 16 rows taking turns; parts of I rows each
  WeightId down;           // [H, I]
};

struct WeightTable {
  std::vector<WeightSpec> specs;  // index: WeightId
  WeightId embedding;             // [V, H]
  WeightId head;        // [V, H]; its spec's alias is `embedding` if the base's head is tied
  WeightId final_norm;  // vector [H]
  std::vector<LayerWeights> layers;
  int64_t head_dim;  // rows of q_proj and k_proj that are one attention head

  struct Place {
    WeightId weight;
    int part;
  };
  // Where a checkpoint tensor goes, by its Hugging Face name
  // ("model.layers.0.self_attn.q_proj.weight"). "lm_head.weight" is there also when the base's head
  // is tied: a variant may bring one.
  std::map<std::string, Place> by_name;
};

WeightTable make_weight_table(const ModelConfig& config);

// One block and the final norm alone, for those who walk a model layer by layer: layers has one
// entry, named as block `layer`; ids are the same for every layer. embedding and head are −1.
WeightTable make_layer_table(const ModelConfig& config, int64_t layer);

// True for the linear layers inside the blocks: the tensors that a sign delta compresses. All
// others stay dense.
bool is_block_matrix(const std::string& hf_name);

}  // namespace deltad
