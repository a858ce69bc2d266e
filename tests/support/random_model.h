// Tiny models of any shape with random weights, and random variants of them, written as files at
// the time of the test: for what the golden models are too small or too even.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "delta/delta_file.h"
#include "model/config.h"
#include "model/weight_table.h"
#include "tensor/float16.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/delta/raw_file.h"

namespace deltad::testing {

// Eight KV heads, and sizes that eight ranks share evenly.
inline ModelConfig even_model() {
  ModelConfig config;
  config.hidden = 64;
  config.layers = 2;
  config.heads = 16;
  config.kv_heads = 8;
  config.head_dim = 8;
  config.intermediate = 128;
  config.vocab = 256;
  config.max_positions = 128;
  config.tied_head = true;
  return config;
}

// Nothing divides by 2: heads end within a byte of signs and within a tile of 16 rows.
inline ModelConfig uneven_model() {
  ModelConfig config;
  config.hidden = 52;
  config.layers = 2;
  config.heads = 9;
  config.kv_heads = 3;
  config.head_dim = 6;
  config.intermediate = 150;
  config.vocab = 517;
  config.max_positions = 128;
  return config;
}

class RandomValues {
 public:
  explicit RandomValues(uint32_t seed) : random_(seed) {}
  float next(double deviation) {
    return static_cast<float>(std::normal_distribution<double>(0, deviation)(random_));
  }
  RawTensor bf16(const Shape& shape, double deviation, float mean = 0) {
    RawTensor tensor{DType::kBF16, shape, ""};
    for (int64_t i = 0; i < shape.count(); ++i)
      append(&tensor.bytes, f32_to_bf16(mean + next(deviation)));
    return tensor;
  }
  RawTensor f32(const Shape& shape, double deviation, float mean = 0) {
    RawTensor tensor{DType::kF32, shape, ""};
    for (int64_t i = 0; i < shape.count(); ++i) append(&tensor.bytes, mean + next(deviation));
    return tensor;
  }
  // Signs of a matrix with so many columns; padding 0.
  RawTensor signs(int64_t rows, int64_t columns) {
    RawTensor tensor{DType::kU8, {rows, (columns + 7) / 8}, ""};
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; c += 8) {
        const int64_t bits = std::min<int64_t>(8, columns - c);
        tensor.bytes.push_back(static_cast<char>(random_() & ((1u << bits) - 1)));
      }
    return tensor;
  }

 private:
  template <typename T>
  static void append(std::string* bytes, T value) {
    bytes->append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  std::mt19937 random_;
};

// Of a matrix's weights, so that its outputs are as large as its inputs.
inline double weight_deviation(const WeightSpec& spec) {
  return 1 / std::sqrt(static_cast<double>(spec.columns));
}

inline RawTensor random_tensor(RandomValues& values, const WeightSpec& spec, int64_t rows) {
  if (spec.kind == WeightKind::kVector) return values.bf16({rows}, 0.1, 1);
  const bool head = spec.parts[0].name == "lm_head.weight";
  return values.bf16({rows, spec.columns}, weight_deviation(spec) * (head ? 3 : 1));
}

// A Hugging Face folder.
inline void write_random_model(const TempFolder& folder, const ModelConfig& config, uint32_t seed) {
  RandomValues values(seed);
  RawFile raw;
  for (const WeightSpec& spec : make_weight_table(config).specs)
    for (const WeightPart& part : spec.parts)
      if (spec.alias < 0) raw.tensors[part.name] = random_tensor(values, spec, part.rows);
  write_raw(folder.file("model.safetensors"), raw);
  folder.write(
      "config.json",
      fmt::format(R"({{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_act": "silu", "hidden_size": {}, "num_hidden_layers": {},
        "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {},
        "intermediate_size": {}, "vocab_size": {}, "max_position_embeddings": {},
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "torch_dtype": "bfloat16",
        "tie_word_embeddings": {}}})",
                  config.hidden, config.layers, config.heads, config.kv_heads, config.head_dim,
                  config.intermediate, config.vocab, config.max_positions, config.tied_head));
}

struct RandomDelta {
  int levels = 1;
  bool alpha_per_row = true;
  bool dense = false;       // norms, embeddings and head replaced
  int64_t more_tokens = 0;  // than the base has, if dense
};

inline void write_random_delta(const std::string& path, const ModelConfig& config,
                               const RandomDelta& what, uint32_t seed) {
  RandomValues values(seed);
  RawFile raw;
  raw.metadata = {{"format", "deltad.delta"},
                  {"version", "1"},
                  {"architecture", config.architecture},
                  {"base_digest", ""},
                  {"alpha", what.alpha_per_row ? "row" : "matrix"},
                  {"levels", std::to_string(what.levels)}};
  for (const WeightSpec& spec : make_weight_table(config).specs)
    for (const WeightPart& part : spec.parts) {
      if (is_block_matrix(part.name)) {
        for (int level = 0; level < what.levels; ++level) {
          const auto alpha = static_cast<float>(0.3 * weight_deviation(spec) / (1 << level));
          raw.tensors[sign_name(part.name, level)] = values.signs(part.rows, spec.columns);
          raw.tensors[alpha_name(part.name, level)] =
              values.f32({what.alpha_per_row ? part.rows : 1}, 0.1 * alpha, alpha);
        }
      } else if (what.dense && spec.alias < 0) {
        const bool tokens = spec.kind != WeightKind::kVector;
        raw.tensors[part.name] =
            random_tensor(values, spec, part.rows + (tokens ? what.more_tokens : 0));
      }
    }
  raw.metadata["digest"] = digest_of(raw);
  write_raw(path, raw);
}

// A PEFT folder with factors of every linear layer in the blocks, made in `folder`.
inline void write_random_lora(const TempFolder& folder, const ModelConfig& config, int64_t rank,
                              uint32_t seed) {
  RandomValues values(seed);
  RawFile raw;
  for (const WeightSpec& spec : make_weight_table(config).specs)
    for (const WeightPart& part : spec.parts) {
      if (!is_block_matrix(part.name)) continue;
      const std::string module =
          "base_model.model." +
          part.name.substr(0, part.name.size() - std::string(".weight").size());
      raw.tensors[module + ".lora_A.weight"] =
          values.f32({rank, spec.columns}, weight_deviation(spec));
      raw.tensors[module + ".lora_B.weight"] = values.f32({part.rows, rank}, 0.2);
    }
  write_raw(folder.file("adapter_model.safetensors"), raw);
  folder.write("adapter_config.json",
               fmt::format(R"({{"peft_type": "LORA", "r": {}, "lora_alpha": {}, "bias": "none",
        "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
        "down_proj"]}})",
                           rank, rank));
}

}  // namespace deltad::testing
