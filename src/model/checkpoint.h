// Checkpoint: a model on disk, whatever its form (Hugging Face folder with one or several
// safetensors files, or a GGUF file), as tensors under their Hugging Face names in the hub's row
// order. Reads rows on demand with pread; holds no weights. Immutable after open(); read_rows may
// be called by several threads at once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/config.h"
#include "tensor/shape.h"

namespace deltad {

struct CheckpointTensor {
  Shape shape;                   // [rows, columns] or [rows]
  std::string stored_type;       // as on disk: "BF16", "F16", "Q4_1", …
  int64_t file = 0, offset = 0;  // where it begins: of the checkpoint's files, and in that one
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  // path: a folder with config.json, or a .gguf file. Checks headers, not values.
  static Result<std::unique_ptr<Checkpoint>> open(const std::string& path);

  virtual const std::string& path() const = 0;
  virtual const ModelConfig& config() const = 0;
  // By Hugging Face name, in byte order. A tied head is no tensor of its own.
  virtual const std::map<std::string, CheckpointTensor>& tensors() const = 0;
  // Rows [first, first + count) of a tensor (a vector is one column… its rows are its elements) as
  // fp32, exactly what is stored (dequantised); out has count · columns values.
  virtual Status read_rows_f32(const std::string& name, int64_t first, int64_t count,
                               float* out) const = 0;
  // The same rounded to bf16 (to nearest even), which is what the daemon holds.
  virtual Status read_rows_bf16(const std::string& name, int64_t first, int64_t count,
                                uint16_t* out) const = 0;
  // The text files beside or inside the model: "tokenizer.json", "tokenizer_config.json",
  // "chat_template.jinja", "generation_config.json", "config.json"; empty if there is none. A GGUF
  // gives its metadata in gguf() instead.
  virtual std::string text_file(const std::string& name) const = 0;
  // Null unless the model is a GGUF file.
  virtual const class GgufFile* gguf() const { return nullptr; }
};

// DESIGN "base_digest": identity of the values as the daemon holds them (bf16), the same for a
// folder, its shards and a GGUF of the same values. 32 lower-case hex digits. Reads at most 256 KiB
// a tensor.
Result<std::string> base_digest(const Checkpoint& checkpoint);

}  // namespace deltad
