// compress: writes a fine-tune as a variant file. Streams: a block of rows of one tensor at a time
// on each thread, so memory does not grow with the model. Matrices inside the blocks become signs
// and α; other tensors that differ are carried; equal ones are left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "delta/layer_fitter.h"
#include "delta/tune.h"
#include "model/checkpoint.h"
#include "model/loader.h"

namespace deltad {

struct CompressOptions {
  std::string variant;  // name, for people
  std::string created_by;
  bool alpha_per_row = true;
  int levels = 1;  // 1 … kMaxLevels
  int jobs = 1;
  Progress progress;
  // Null: α is the mean of |Δ|. Else it chooses signs, α and the levels of each matrix.
  LayerFitter* fitter = nullptr;
};

// What compression did to the matrices of one kind ("q_proj"), or to all.
struct KindReport {
  std::string kind;
  int64_t matrices = 0, weights = 0;
  int64_t zeros = 0;       // of Δ
  int64_t bytes = 0;       // of signs, α and low-rank parts
  int64_t rank_bytes = 0;  // what low-rank parts take a rank, if they have any or not
  double delta_squares = 0, base_squares = 0, error_squares = 0;

  double relative_delta() const;  // ‖Δ‖/‖W‖
  double relative_error() const;  // ‖Δ−Δ̂‖/‖Δ‖
  double zero_share() const;
  double ratio() const;  // bf16 bytes to bytes
};

struct CompressReport {
  std::vector<KindReport> kinds;  // those that have compressed matrices, in the model's order
  KindReport total;
  int levels = 0;  // the most that a matrix has
  int64_t dense_tensors = 0, dense_bytes = 0;
  int64_t equal_tensors = 0;  // left out
  int64_t file_bytes = 0;
  int64_t model_bytes = 0;  // of the whole variant in bf16
  std::string digest, base_digest;
  int suggested_levels = 0;               // 0: the error is fine as it is
  std::vector<std::string> large_errors;  // the kinds behind the suggestion
};

// Above this relative error one more level is suggested: light fine-tunes saved in bf16 leave most
// weights as they were, and one sign is then mostly noise.
constexpr double kLargeError = 0.75;

// The file appears under `path` only when it is whole.
Result<CompressReport> compress(const Checkpoint& base, const Tune& tune, const std::string& path,
                                const CompressOptions& options);

}  // namespace deltad
