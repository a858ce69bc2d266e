// MergeSources: the fine-tunes that a merge reads, of any form, checked to fit each other and the
// base, as differences from the base. Immutable; rows may be read by several threads at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "delta/tune.h"
#include "merge/matrix.h"
#include "model/checkpoint.h"

namespace deltad {

// "q_proj" for "model.layers.0.self_attn.q_proj.weight".
std::string kind_of_weight(const std::string& name);

// The base's values, bf16 [count, columns]. A head that a tied base does not have is its
// embeddings.
Status base_rows(const Checkpoint& base, const std::string& name, int64_t first, int64_t count,
                 uint16_t* values);

class MergeSources {
 public:
  // `base` stays alive longer. Every source has the base's vocabulary.
  static Result<MergeSources> open(const Checkpoint& base, const std::vector<std::string>& paths,
                                   int jobs);

  const Checkpoint& base() const { return *base_; }
  size_t count() const { return tunes_.size(); }
  const Tune& tune(size_t source) const { return *tunes_[source]; }
  // What at least one of them changes. The type of a tensor carried whole is BF16 if all have it
  // so, else F32.
  const std::map<std::string, TunedTensor>& tensors() const { return tensors_; }
  bool tied_head() const { return tied_head_; }
  bool changes(size_t source, const std::string& name) const {
    return changed_[source].count(name) != 0;
  }

  // Δ of one source, fp64 [count, columns]; 0 where it has the base's values. kInvalidArgument
  // names the source, tensor and row of a value that is not finite.
  Status delta_rows(size_t source, const std::string& name, int64_t first, int64_t count,
                    double* delta) const;
  // The same as a whole, in fp32.
  Result<Matrix> delta(size_t source, const std::string& name) const;
  // ‖W0‖ of a tensor.
  Result<double> base_norm(const std::string& name) const;
  // 32 hex digits that tell the content of a source from another's: over the first row of each of
  // its tensors.
  Result<std::string> identity(size_t source) const;

 private:
  Status check_fit();

  const Checkpoint* base_ = nullptr;
  std::vector<std::unique_ptr<Tune>> tunes_;
  std::vector<std::map<std::string, bool>> changed_;  // by source
  std::map<std::string, TunedTensor> tensors_;
  bool tied_head_ = false;
};

}  // namespace deltad
