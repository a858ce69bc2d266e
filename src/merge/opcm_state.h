// OpcmState: where an OPCM sequence stands, as a safetensors file that each step replaces as a
// whole, so that a sequence goes on after a crash at its last whole step. The file holds, in F32
// and for each tensor that some source changed, U = λ·Δ: the sum of the projected task vectors
// before scaling. Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/safetensors.h"
#include "merge/memory_account.h"
#include "merge/merge_sources.h"
#include "merge/merged_tune.h"
#include "merge/opcm.h"
#include "model/loader.h"

namespace deltad {

struct OpcmOptions {
  double share = 0.5;  // a
  int jobs = 1;
  MemoryAccount* memory = nullptr;
  Progress progress;
};

struct OpcmReport {
  std::string name;
  OpcmFigures figures;
};

class OpcmState {
 public:
  struct Merged {
    std::string path, identity;  // MergeSources::identity
  };

  // kNotFound if there is none.
  static Result<OpcmState> open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<Merged>& merged() const { return merged_; }
  double lambda() const { return lambda_; }
  double norm_sum() const { return norm_sum_; }  // of the task vectors so far
  double share() const { return share_; }
  bool tied_head() const { return tied_head_; }
  const SafetensorsFile& file() const { return file_; }
  // U of rows, F32 [count, columns]; 0 for a tensor that it does not have.
  Status rows(const std::string& name, int64_t first, int64_t count, int64_t columns,
              float* values) const;
  // That it was made for this base with this share, and the sources fit to what is in it.
  Status check(const MergeSources& sources, double share) const;

 private:
  SafetensorsFile file_;
  std::vector<Merged> merged_;
  std::string base_digest_;
  double lambda_ = 1, norm_sum_ = 0, share_ = 0;
  bool tied_head_ = false;
};

// One step: U ← U + P(τ) with τ the task vector of sources[source]; before: null at the first. λ
// becomes ‖U‖ over the mean norm of the task vectors so far. The new state takes the place of the
// file at `path` when it is whole.
Result<std::vector<OpcmReport>> opcm_step(const OpcmState* before, const MergeSources& sources,
                                          size_t source, const OpcmOptions& options,
                                          const std::string& path);
// What one thread of a step holds at most.
int64_t opcm_bytes_for(const Shape& matrix);

// Δ = U/λ, of a state.
class OpcmMerge : public MergedTune {
 public:
  // All stay alive longer. text: as MergedTune.
  OpcmMerge(const Checkpoint& base, const OpcmState& state, const Tune* text);

 protected:
  Status merged_rows(const std::string& name, int64_t first, int64_t count,
                     double* delta) const override;

 private:
  const OpcmState& state_;
};

}  // namespace deltad
