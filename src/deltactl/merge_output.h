// Where deltactl merge puts its result: a model folder, a PEFT LoRA folder, or a sign delta. Main
// thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/status.h"
#include "delta/tune.h"
#include "manual/command.h"
#include "merge/lora_folder.h"
#include "merge/memory_account.h"

namespace deltad {

struct MergeOutputOptions {
  std::string path, form, name;
  int64_t rank = 16;
  std::string svd = "auto", dtype;
  std::string alpha = "row";
  int levels = 1;
  bool weights_only = false;
};

// -o, --as, --name, --rank, --svd, --dtype, --alpha, --levels, --weights-only.
void add_merge_output_options(Command* command, MergeOutputOptions* options,
                              const std::string& default_form);

// Before the work: settles the form by the path if none was asked for, and checks that the options
// go together.
Status settle_merge_output(MergeOutputOptions* options, const std::string& default_form);
// What one writing thread holds at most, beside what the merge holds.
int64_t merge_output_bytes(const MergeOutputOptions& options, const Shape& matrix);

// Writes it, with a progress bar, and returns what there is to say about it. text_path: the first
// source, whose text files go with the result.
Result<nlohmann::ordered_json> write_merge_output(const Checkpoint& base, const Tune& tune,
                                                  const std::string& text_path,
                                                  const MergeOutputOptions& options, int jobs,
                                                  MemoryAccount* memory);

}  // namespace deltad
