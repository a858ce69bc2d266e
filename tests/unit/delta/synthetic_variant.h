// A made-up variant with tensors longer than one part of the digest, in rows that no part ends
// with: what the tiny golden models are too small for.
#pragma once

#include <string>

#include "delta/delta_file.h"
#include "model/config.h"
#include "raw_file.h"
#include "tensor/float16.h"

namespace deltad::testing {

// down_proj.sign has 5 MB in rows of 5,000 bytes, the embeddings 6 MB in rows of 2,000.
inline ModelConfig synthetic_model() {
  ModelConfig config;
  config.hidden = 1000;
  config.layers = 1;
  config.heads = config.kv_heads = 1;
  config.head_dim = 8;
  config.intermediate = 40000;
  config.vocab = 3000;
  return config;
}

inline RawFile synthetic_variant(const ModelConfig& config, uint32_t seed) {
  RawFile raw;
  raw.metadata = {
      {"format", "deltad.delta"}, {"version", "1"}, {"architecture", config.architecture},
      {"base_digest", ""},        {"alpha", "row"}, {"levels", "1"}};
  auto random = [state = seed]() mutable {
    return static_cast<uint16_t>((state = state * 1664525 + 1013904223) >> 16);
  };
  for (const WeightSpec& spec : make_weight_table(config).specs)
    for (const WeightPart& part : spec.parts) {
      if (is_block_matrix(part.name)) {
        RawTensor sign{DType::kU8, {part.rows, (spec.columns + 7) / 8}, ""};
        sign.bytes.resize(static_cast<size_t>(sign.shape.count()));
        for (char& c : sign.bytes) c = static_cast<char>(random());
        RawTensor alpha{DType::kF32, {part.rows}, ""};
        for (int64_t r = 0; r < part.rows; ++r) {
          const float value = static_cast<float>(random()) * 1e-7f;
          alpha.bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
        }
        raw.tensors[sign_name(part.name, 0)] = std::move(sign);
        raw.tensors[alpha_name(part.name, 0)] = std::move(alpha);
      } else if (part.name != "lm_head.weight") {
        RawTensor dense{DType::kBF16, {part.rows}, ""};
        if (spec.kind != WeightKind::kVector) dense.shape.append(spec.columns);
        for (int64_t i = 0; i < dense.shape.count(); ++i) {
          const uint16_t value = f32_to_bf16(static_cast<float>(random()) * 1e-4f);
          dense.bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
        }
        raw.tensors[part.name] = std::move(dense);
      }
    }
  raw.metadata["digest"] = digest_of(raw);
  return raw;
}

}  // namespace deltad::testing
