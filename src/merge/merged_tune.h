// MergedTune: the result of a merge as a Tune, so that whatever writes a fine-tune (compress, model
// folder, LoRA folder) writes it, tensor by tensor, while it is being computed. Rows may be read by
// several threads at once.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "delta/tune.h"
#include "merge/merge_sources.h"

namespace deltad {

class MergedTune : public Tune {
 public:
  // text: whose tokenizer, template and generation settings go with the result; may be null. Base
  // and text stay alive longer.
  MergedTune(const Checkpoint& base, std::string path, std::map<std::string, TunedTensor> tensors,
             bool tied_head, const Tune* text)
      : base_(base),
        path_(std::move(path)),
        tensors_(std::move(tensors)),
        tied_head_(tied_head),
        text_(text) {}

  const std::string& path() const override { return path_; }
  const std::map<std::string, TunedTensor>& tensors() const override { return tensors_; }
  bool tied_head() const override { return tied_head_; }
  Result<bool> differs(const std::string&) const override { return true; }
  Status delta_rows(const std::string& name, int64_t first, int64_t count, const uint16_t*,
                    double* delta) const override {
    return merged_rows(name, first, count, delta);
  }
  // W0 + Δ, rounded once to the tensor's type.
  Status value_rows(const std::string& name, int64_t first, int64_t count,
                    float* values) const override;
  std::string text_file(const std::string& name) const override {
    return text_ != nullptr ? text_->text_file(name) : std::string();
  }
  const Checkpoint* checkpoint() const override {
    return text_ != nullptr ? text_->checkpoint() : nullptr;
  }

 protected:
  // Δ of the result, fp64 [count, columns].
  virtual Status merged_rows(const std::string& name, int64_t first, int64_t count,
                             double* delta) const = 0;

 private:
  const Checkpoint& base_;
  const std::string path_;
  const std::map<std::string, TunedTensor> tensors_;
  const bool tied_head_;
  const Tune* const text_;
};

}  // namespace deltad
