// apply: writes what a variant computes as a model of its own: W + Σ α·sign, and the dense tensors,
// as a Hugging Face folder that other programs load. Streams blocks of rows; memory does not grow
// with the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "delta/delta_file.h"
#include "model/checkpoint.h"
#include "model/loader.h"
#include "tensor/dtype.h"

namespace deltad {

struct ApplyOptions {
  DType dtype = DType::kBF16;  // or kF32
  int jobs = 1;
  Progress progress;
};

struct ApplyReport {
  int64_t tensors = 0, bytes = 0;
  int64_t weights = 0;  // of matrices with a sign delta
  // Of those, how many the rounding left at the base's value although their delta is not 0. An α
  // below a weight's last digit gets lost this way; the daemon, which never adds them, loses none.
  int64_t lost = 0;
};

// The file is checked whole first (names, shapes, digest, base). `folder` is made if need be; each
// file in it appears whole.
Result<ApplyReport> apply(const Checkpoint& base, const DeltaFile& delta,
                          const std::string& variant_path, const std::string& folder,
                          const ApplyOptions& options);

}  // namespace deltad
