// Writes a fine-tune (of any form) as a model of its own: W0 + Δ and the tensors it carries, as a
// Hugging Face folder. Streams blocks of rows. Main thread, with helpers.
#pragma once

#include <string>

#include "base/status.h"
#include "delta/tune.h"
#include "model/checkpoint.h"
#include "model/loader.h"
#include "tensor/dtype.h"

namespace deltad {

struct TuneFolderOptions {
  DType dtype = DType::kBF16;  // or kF32
  std::string
      text_path;  // folder whose tokenizer, template and generation settings hold; "": the base's
  int jobs = 1;
  Progress progress;
};

struct TuneFolderReport {
  int64_t tensors = 0, bytes = 0;
  int64_t weights = 0;  // of matrices that are the base's with a Δ
  // Of those, how many the rounding left at the base's value although their Δ is not 0. One below a
  // weight's last digit gets lost this way; the daemon, which never adds them, loses none.
  int64_t lost = 0;
};

// The weights are computed whole before anything in the folder is replaced.
Result<TuneFolderReport> write_tune_folder(const Checkpoint& base, const Tune& tune,
                                           const std::string& folder,
                                           const TuneFolderOptions& options);

}  // namespace deltad
