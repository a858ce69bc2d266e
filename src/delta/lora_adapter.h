// LoraAdapter: a LoRA adapter's files, read and checked against a base: which tensors it changes,
// by which factors, rank and scale. A PEFT folder (adapter_config.json,
// adapter_model.safetensors), a GGUF file of type "adapter", or a packed file
// (delta/packed_adapter.h). Values are read on demand.
// Immutable; any thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "delta/lora_config.h"
#include "io/file_reader.h"
#include "io/safetensors.h"
#include "model/weight_table.h"

namespace deltad {

// A tensor of the adapter's file.
struct AdapterTensor {
  std::string name;
  SafetensorsEntry entry;  // of a float type
};

// What the adapter does to one weight: factors, or a tensor saved whole.
struct AdapterChange {
  std::optional<AdapterTensor> a, b;  // a [r, d_in], b [d_out, r]; of embeddings [r, V] and [H, r]
  std::optional<AdapterTensor> whole;
  // Of a packed file: where both factors lie. a and b then have the name and shape only.
  std::optional<SafetensorsEntry> packed;
  bool embedding = false;
  int64_t rank = 0;
  double scale = 0;  // Δ = scale·B·A
  // Not 0: the rows of b (of whole) lie in GGUF's order within heads of so many.
  int64_t head_rows = 0;
};

// Where row `row` of a q or k projection lies in a GGUF file: within a head of so many rows, the
// file's 2i is Hugging Face's i and its 2i+1 Hugging Face's i + rows/2.
constexpr int64_t gguf_head_row(int64_t row, int64_t head_rows) {
  const int64_t in = row % head_rows, half = head_rows / 2;
  return row - in + (in < half ? 2 * in : 2 * (in - half) + 1);
}

class LoraAdapter {
 public:
  // kUnimplemented names what is not plain LoRA; kInvalidArgument lists the tensors that belong to
  // no module of the base, or says what is wrong with one.
  static Result<LoraAdapter> open(const std::string& path, const WeightTable& table);

  const std::string& path() const { return reader_->path(); }  // of the file with the tensors
  const FileReader& reader() const { return *reader_; }
  // By the weight's Hugging Face name.
  const std::map<std::string, AdapterChange>& changes() const { return changes_; }
  // That the head is the embeddings with what the adapter does to them.
  bool head_follows_embeddings() const { return head_follows_; }
  // What a packed file says; "" otherwise.
  const std::string& base_digest() const { return base_digest_; }
  const std::string& digest() const { return digest_; }
  int packed_bits() const { return packed_bits_; }  // 16, 8 or 4; 0: not packed
  // Both factors of a module from its packed tensor's bytes.
  Status unpack(const AdapterChange& change, const uint8_t* raw, std::vector<float>* a,
                std::vector<float>* b) const;
  // kUnavailable if the files are not as they were when opened.
  Status unchanged() const;

  // Rows [first, first + count) of a tensor, as fp32 (exact), in the Hugging Face order.
  Status read_rows(const AdapterChange& change, const AdapterTensor& tensor, int64_t first,
                   int64_t count, float* out) const;

 private:
  Status open_peft(const std::string& folder, const WeightTable& table);
  Status collect_peft(const SafetensorsFile& file, const WeightTable& table);
  Status open_gguf(const std::string& path, const WeightTable& table);
  Status open_packed(const std::string& path, const WeightTable& table);
  Status read_packed_rows(const AdapterChange& change, bool of_a, int64_t first, int64_t count,
                          float* out) const;
  Status check_all(const WeightTable& table);
  Status check(const std::string& weight, const WeightTable& table, AdapterChange* change) const;
  Status check_whole(const std::string& weight, const WeightTable& table,
                     const AdapterChange& change) const;
  Status settle_head(const WeightTable& table);
  Result<bool> equal_bytes(const SafetensorsEntry& x, const SafetensorsEntry& y) const;
  Status wrong(const std::string& tensor, const std::string& what) const;

  std::shared_ptr<const FileReader> reader_;
  std::string config_path_, config_text_;  // of a PEFT folder
  LoraConfig config_;
  std::map<std::string, AdapterChange> changes_;
  bool head_follows_ = false;
  std::string base_digest_, digest_;
  int packed_bits_ = 0;
};

}  // namespace deltad
