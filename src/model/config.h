// ModelConfig: the shape of a transformer, read from a Hugging Face config.json or GGUF metadata.
// Plain data; reading it is model/config.cc (JSON) and model/gguf_config.cc (GGUF).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace deltad {

class GgufFile;

struct ModelConfig {
  std::string architecture = "LlamaForCausalLM";  // the first of config.json's "architectures"
  std::string name;                               // folder or file name, for people
  int64_t hidden = 0;                             // H
  int64_t layers = 0;                             // L
  int64_t heads = 0;                              // query heads
  int64_t kv_heads = 0;                           // key and value heads; divides heads
  int64_t head_dim = 0;                           // even
  int64_t intermediate = 0;                       // I, of the gated MLP
  int64_t vocab = 0;                              // V, rows of the embedding
  int64_t max_positions = 0;                      // longest context the model was made for
  double rope_theta = 10000.0;
  double rms_eps = 1e-5;
  bool tied_head = false;  // the LM head is the embedding
  int32_t bos_id = -1;     // -1: none
  std::vector<int32_t> eos_ids;
};

// Largest sizes that are accepted. No model comes near; they bound what a hostile file can ask for.
constexpr int64_t kMaxWidth = int64_t{1} << 20;  // hidden, intermediate, heads · head_dim
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 4096;

// What sizes must satisfy together, wherever they were read from: kv_heads divides heads, head_dim
// is even, widths are within the limits.
Status check_config(const ModelConfig& config);

// Reads config.json (the older style with rope_theta/torch_dtype and the newer with
// rope_parameters/dtype) and, where given, generation_config.json ("" if none). kUnimplemented
// names an architecture, rope type or activation that is not supported; kInvalidArgument names the
// key and what was expected.
Result<ModelConfig> parse_hf_config(const std::string& config_json,
                                    const std::string& generation_config_json);

// The same from the metadata of a GGUF file of architecture "llama"; messages name the file.
Result<ModelConfig> read_gguf_config(const GgufFile& file);

}  // namespace deltad
