// DeltaFile: a variant file's header, read and checked: metadata, which tensors it holds and how
// they belong together (sign levels with their α, dense tensors). Values are checked when they are
// read (delta_reader). Immutable; any thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "model/weight_table.h"

namespace deltad {

struct VariantHeader {  // the file's metadata
  std::string variant, base_name;
  std::string base_digest;  // "": unchecked
  std::string architecture, created_by;
  std::string digest;  // as claimed; an identity only once it has been verified
  bool alpha_per_row = false;
  int levels = 1;
  std::optional<bool> tie_word_embeddings;  // of the fine-tune; none: as the base
};

// What a tensor of a variant file is, by its name.
enum class TensorRole { kSign, kAlpha, kLowRank, kDense };
struct TensorPlace {
  TensorRole role;
  std::string weight;  // Hugging Face name of the weight that it changes, with ".weight"
  int level = 0;
};
TensorPlace place_of_tensor(const std::string& name);
// "M.sign", "M.alpha.1" for weight "M.weight".
std::string sign_name(const std::string& weight, int level);
std::string alpha_name(const std::string& weight, int level);
std::string low_rank_name(const std::string& weight);

// Where the variant's LM head comes from.
enum class HeadSource { kFileHead, kFileEmbeddings, kBaseHead };

class DeltaFile {
 public:
  // sign U8 [d_out, ⌈d_in/8⌉], alpha F32 [1] or [d_out]
  struct Level {
    SafetensorsEntry sign, alpha;
  };

  // path: the file, or a variant folder. Errors name the file, the tensor and what was expected.
  static Result<DeltaFile> open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const SafetensorsFile& file() const { return file_; }
  const VariantHeader& header() const { return header_; }
  // By the weight's Hugging Face name.
  const std::map<std::string, std::vector<Level>>& matrices() const { return matrices_; }
  // U8 [rank, low_rank_row_bytes]: of matrices that have signs beside it, or not.
  const std::map<std::string, SafetensorsEntry>& low_rank() const { return low_rank_; }
  const std::map<std::string, SafetensorsEntry>& dense() const { return dense_; }

  HeadSource head_source(bool base_tied) const;

  // Every tensor against the base's weights: names, shapes.
  Status check_shapes(const WeightTable& table) const;
  // Metadata against a base; "" skips that check.
  Status check_base(const std::string& architecture, const std::string& base_digest) const;

 private:
  Status read_header();
  Status sort_tensors();
  Status check_levels(const std::string& weight, const std::vector<Level>& levels) const;
  Status wrong(const std::string& tensor, const std::string& what) const;

  SafetensorsFile file_;
  VariantHeader header_;
  std::map<std::string, std::vector<Level>> matrices_;
  std::map<std::string, SafetensorsEntry> low_rank_, dense_;
};

}  // namespace deltad
