// The small files of a Hugging Face folder: config.json, generation_config.json and the
// tokenizer's, for a base (of either form) with a variant applied. Main thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "model/checkpoint.h"
#include "tensor/dtype.h"

namespace deltad {

struct FolderModel {
  int64_t vocab = 0;
  bool tied_head = false;
  DType dtype = DType::kBF16;
};

// variant_path: the variant file or folder; its own text files take the place of the base's.
Status write_model_files(const Checkpoint& base, const std::string& variant_path,
                         const FolderModel& model, const std::string& folder);

}  // namespace deltad
