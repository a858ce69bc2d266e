// Tune: a fine-tune on disk as compress reads it, whatever its form: a whole model, or an adapter.
// Immutable; rows may be read by several threads at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/checkpoint.h"
#include "model/weight_table.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace deltad {

// A tensor that the fine-tune may change.
struct TunedTensor {
  Shape shape;
  bool as_delta = false;      // a matrix inside the blocks, to be compressed; else carried whole
  DType type = DType::kBF16;  // of the carried values: the fine-tune's own
};

// Δ = scale·B·A of one matrix.
struct LowRankFactors {
  int64_t rank = 0;
  float scale = 0;
  std::vector<float> a, b;  // [rank, d_in], [d_out, rank]
};

class Tune {
 public:
  virtual ~Tune() = default;

  virtual const std::string& path() const = 0;
  // By Hugging Face name. All are tensors of the base, except that an LM head may be new.
  virtual const std::map<std::string, TunedTensor>& tensors() const = 0;
  // Whether the head is tied, where this differs from what the base's config says or may do so.
  virtual bool tied_head() const = 0;
  // False if the tensor has the base's values.
  virtual Result<bool> differs(const std::string& name) const = 0;
  // Δ of rows [first, first+count): base bf16 and delta, both [count, columns].
  virtual Status delta_rows(const std::string& name, int64_t first, int64_t count,
                            const uint16_t* base, double* delta) const = 0;
  // W + Δ of the same rows, rounded to bf16 once.
  virtual Status tuned_rows(const Checkpoint& base, const std::string& name, int64_t first,
                            int64_t count, uint16_t* tuned) const;
  // The values themselves, exact in `type`; fp32 [count, columns].
  virtual Status value_rows(const std::string& name, int64_t first, int64_t count,
                            float* values) const = 0;
  // The factors of a matrix's Δ, if the fine-tune has it as factors.
  virtual Result<std::optional<LowRankFactors>> low_rank(const std::string&) const {
    return std::optional<LowRankFactors>();
  }
  // "tokenizer.json" and the like beside the weights; "" if there is none.
  virtual std::string text_file(const std::string& name) const = 0;
  // The whole model, if it is one.
  virtual const Checkpoint* checkpoint() const { return nullptr; }
};

// A fine-tuned model of the base's architecture and sizes (the vocabulary may be larger). `base`
// stays alive longer. kInvalidArgument names what does not fit.
Result<std::unique_ptr<Tune>> open_tuned_model(const Checkpoint& base, const std::string& path);

// A LoRA adapter (a PEFT folder or a .gguf file) for `base`, which stays alive
// longer. kUnimplemented names what is not plain LoRA; kInvalidArgument lists the tensors that
// belong to no module of the base.
Result<std::unique_ptr<Tune>> open_adapter(const Checkpoint& base, const std::string& path);

// A variant file or folder made for `base`, which stays alive longer. Checked whole: names, shapes,
// digest, base.
Result<std::unique_ptr<Tune>> open_variant_tune(const Checkpoint& base, const std::string& path);

// Any of these, told by what lies there.
Result<std::unique_ptr<Tune>> open_tune(const Checkpoint& base, const std::string& path);

// Every tensor that the base's config calls for is there, in its shape.
Status check_base_tensors(const Checkpoint& base);

// Rows that one block of work takes: about a MiB of fp32 values, at least one row.
int64_t block_rows(const Shape& shape);
inline int64_t columns_of(const Shape& shape) { return shape.rank() == 2 ? shape[1] : 1; }

// True if `tune`'s values of a tensor are neither the base's stored values nor those rounded to
// bf16. Stops at the first difference.
Result<bool> values_differ(const Checkpoint& base, const Tune& tune, const std::string& name);

}  // namespace deltad
