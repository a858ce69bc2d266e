// Where compress puts a variant: a single file, or a folder with the text files that go with it.
// Main thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "delta/text_changes.h"

namespace deltad {

struct VariantOutput {
  std::string path;  // as asked for
  std::string file;  // the variant file to be
  std::string name;  // of the variant
  bool is_folder = false;
};

// A path that ends in .safetensors is a file, everything else a folder.
VariantOutput variant_output(const std::string& path, const std::string& name);

// Before the work: refuses what cannot be written (by its folder), and what would give a variant
// that means something else than the fine-tune.
// kInvalidArgument for text changes and a single file; for a folder that holds another variant, or
// text files that would then hold for this one.
Status check_output(const VariantOutput& output, const std::vector<TextChange>& changes);

// Makes the folder and writes the text files. After it comes the variant file itself.
Status write_text_changes(const VariantOutput& output, const std::vector<TextChange>& changes);

}  // namespace deltad
