// GGUF v3 files (llama.cpp's format): magic "GGUF", version, counts, metadata key-values, tensor
// infos, aligned data. Reader: checks the header completely (counts, lengths, types, offsets,
// overlaps against the file's size) before it believes any of it; tensor data is read on demand.
// The layout is described in gguf_header.cc where it is read, the types in gguf_types.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "io/file_reader.h"

namespace deltad {

enum class GgufType : uint32_t { kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 8, kBF16 = 30 };

struct GgufTensor {
  uint32_t type;               // as in the file; may be one that is not supported
  std::vector<int64_t> shape;  // outermost first: [rows, columns] (the file has it reversed)
  int64_t offset;              // in the file
  int64_t bytes;               // 0 if the type is not supported
  // As a matrix; a vector's rows are its elements.
  int64_t rows() const {
    int64_t rows = shape.front();
    for (size_t i = 1; i + 1 < shape.size(); ++i) rows *= shape[i];
    return rows;
  }
  int64_t columns() const { return shape.size() > 1 ? shape.back() : 1; }
};

// Integers of every width are int64_t; uint64_t holds only what is above INT64_MAX. Lists of bool
// are lists of integers.
using GgufValue = std::variant<bool, int64_t, uint64_t, double, std::string,
                               std::vector<std::string>, std::vector<int64_t>, std::vector<double>>;

class GgufFile {
 public:
  static Result<std::unique_ptr<GgufFile>> open(const std::string& path);
  static Result<std::unique_ptr<GgufFile>> open(std::shared_ptr<FileReader> file);
  // Content that is in memory, under a name for messages (fuzzing and tests).
  static Result<std::unique_ptr<GgufFile>> parse(std::string_view bytes, const std::string& name);

  const std::string& path() const { return path_; }
  const std::map<std::string, GgufValue>& metadata() const { return metadata_; }
  const std::map<std::string, GgufTensor>& tensors() const { return tensors_; }

  // Metadata by key; kNotFound or kInvalidArgument (other type) name the key and the file.
  Result<std::string> string(const std::string& key) const;
  Result<int64_t> integer(const std::string& key) const;
  Result<double> number(const std::string& key) const;  // an integer counts as a number
  Result<std::vector<std::string>> strings(const std::string& key) const;
  Result<std::vector<int64_t>> integers(const std::string& key) const;
  bool has(const std::string& key) const { return metadata_.count(key) != 0; }

  // Rows [first, first+count) dequantised to fp32, in the file's row order. Thread-safe.
  Status read_rows_f32(const GgufTensor& tensor, int64_t first, int64_t count, float* out) const;
  // Visits rows [first, first+count) as they are stored, in order, through 1 MiB of staging:
  // visit(at, count, raw) gets `count` values (whole blocks of the type), of which the first is
  // value `at` of the tensor, and either whole rows or a piece of one. Thread-safe.
  using Visit = std::function<void(int64_t at, int64_t count, const uint8_t* raw)>;
  Status visit_rows(const GgufTensor& tensor, int64_t first, int64_t count,
                    const Visit& visit) const;

 private:
  GgufFile() = default;
  std::string path_;
  std::shared_ptr<FileReader> file_;
  std::map<std::string, GgufValue> metadata_;
  std::map<std::string, GgufTensor> tensors_;
};

std::string gguf_type_name(uint32_t type);  // "Q4_1", …, or "type 42"

// How a supported type is stored: blocks of `values` values in `bytes` bytes. Null for all others.
struct GgufBlock {
  int64_t values, bytes;
};
const GgufBlock* gguf_block(uint32_t type);

// `count` values (whole blocks) of a supported type: exactly what is stored, or that rounded to
// bf16.
void gguf_dequantise(uint32_t type, const uint8_t* raw, int64_t count, float* out);
void gguf_dequantise(uint32_t type, const uint8_t* raw, int64_t count, uint16_t* bf16_out);

}  // namespace deltad
