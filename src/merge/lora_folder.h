// Writes a fine-tune (of any form) as a PEFT LoRA folder: for each matrix inside the blocks the
// best factors of a given rank, other tensors whole (modules_to_save). One matrix at a time in
// memory for each thread. Main thread, with helpers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "delta/tune.h"
#include "merge/memory_account.h"
#include "model/loader.h"

namespace deltad {

enum class SvdChoice {
  kAuto,  // randomized for matrices whose smaller side is over 1024 and over 4·(rank + 16)
  kExact,
  kRandomized,
};

struct LoraFolderOptions {
  int64_t rank = 16;
  DType dtype = DType::kF32;  // of the factors; or kBF16
  SvdChoice svd = SvdChoice::kAuto;
  std::string base_name;  // base_model_name_or_path
  int jobs = 1;
  MemoryAccount* memory = nullptr;
  Progress progress;
};

struct LoraReport {
  std::string name;
  int64_t rank = 0;        // that was needed, at most the asked one; the rest is 0
  double kept_energy = 1;  // ‖BA‖²/‖Δ‖²
  double error = 0;  // ‖Δ − BA‖/‖Δ‖, of these very factors before rounding to `dtype`
  bool randomized = false;
};

// The factors are computed whole before anything in the folder is replaced. By name.
Result<std::vector<LoraReport>> write_lora_folder(const Checkpoint& base, const Tune& tune,
                                                  const std::string& folder,
                                                  const LoraFolderOptions& options);
// What one thread holds at most.
int64_t lora_bytes_for(const Shape& matrix, const LoraFolderOptions& options);

}  // namespace deltad
