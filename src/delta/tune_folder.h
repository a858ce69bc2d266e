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

// The weights are computed whole before anything in the folder is replaced. Returns the bytes of
// the weights.
Result<int64_t> write_tune_folder(const Checkpoint& base, const Tune& tune,
                                  const std::string& folder, const TuneFolderOptions& options);

}  // namespace deltad
