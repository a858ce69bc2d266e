// A model of an 8-billion-parameter model's shapes that needs no file: random weights, and random
// variants of it, in a file or straight in a backend's memory. For benchmarks: what a weight is
// does not change what it costs. Header-only, one thread unless said otherwise.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/random.h"
#include "delta/delta_file.h"
#include "delta/digest.h"
#include "delta/loader.h"
#include "io/safetensors.h"
#include "tensor/float16.h"

namespace deltad::bench {

inline ModelConfig synthetic_8b(int64_t layers, int64_t vocab) {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.layers = layers;
  config.hidden = 4096;
  config.intermediate = 14336;
  config.heads = 32;
  config.kv_heads = 8;
  config.head_dim = 128;
  config.vocab = vocab;
  config.max_positions = 8192;
  config.rope_theta = 5e5;
  return config;
}

// Random signs and α for every matrix of the blocks, and all the norms, as a variant file.
inline Status write_synthetic_variant(const std::string& path, const WeightTable& table) {
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const WeightSpec& spec : table.specs)
    for (const WeightPart& part : spec.parts) {
      if (is_block_matrix(part.name)) {
        tensors.push_back({alpha_name(part.name, 0), DType::kF32, {part.rows}});
        tensors.push_back({sign_name(part.name, 0), DType::kU8, {part.rows, spec.columns / 8}});
      } else if (spec.kind == WeightKind::kVector) {
        tensors.push_back({part.name, DType::kBF16, {part.rows}});
      }
    }
  std::map<std::string, std::string> metadata = {{"format", "deltad.delta"},
                                                 {"version", "1"},
                                                 {"architecture", "LlamaForCausalLM"},
                                                 {"base_digest", ""},
                                                 {"alpha", "row"},
                                                 {"levels", "1"},
                                                 {"variant", "synthetic"},
                                                 {"base_name", ""},
                                                 {"created_by", "a benchmark"},
                                                 {"digest", std::string(32, '0')}};
  ASSIGN_OR_RETURN(auto writer, SafetensorsWriter::create(path, metadata, tensors));
  uint64_t state = 88172645463325252u;
  std::map<std::string, HashedTensor> hashed;
  for (const SafetensorsWriter::Tensor& tensor : tensors) {
    const int64_t count = tensor.shape.count();
    std::vector<uint64_t> bytes((static_cast<size_t>(count) * dtype_size(tensor.dtype) + 7) / 8);
    for (uint64_t& word : bytes) word = next_random(state);
    if (tensor.dtype == DType::kF32)
      for (int64_t i = 0; i < count; ++i)
        reinterpret_cast<float*>(bytes.data())[i] = static_cast<float>(i % 1000 + 1) * 1e-6f;
    if (tensor.dtype == DType::kBF16)
      for (int64_t i = 0; i < count; ++i)
        reinterpret_cast<uint16_t*>(bytes.data())[i] =
            f32_to_bf16(1.0f + static_cast<float>(i % 7) / 64);
    const int64_t size = count * static_cast<int64_t>(dtype_size(tensor.dtype));
    TensorHasher hasher;
    hasher.update(bytes.data(), size);
    hashed.emplace(tensor.name, HashedTensor{tensor.dtype, tensor.shape, hasher.finish()});
    RETURN_IF_ERROR(writer->write(tensor.name, 0, bytes.data(), size));
  }
  RETURN_IF_ERROR(writer->set_metadata("digest", variant_digest(hashed)));
  return writer->finish();
}

// So that the next read comes from the disk, as far as this machine decides that.
inline Status drop_from_cache(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool done =
      fd >= 0 && fdatasync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0;
  if (fd >= 0) ::close(fd);
  return done ? Status() : internal_error(path + " cannot be dropped from the page cache");
}

}  // namespace deltad::bench
