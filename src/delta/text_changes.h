// Which of a fine-tune's text files (tokenizer, template, generation settings) say something else
// than the base: those go with the variant. Compared by meaning, not by bytes, since the base may
// be a GGUF file and libraries write the same content in many ways. Main thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "delta/tune.h"
#include "model/checkpoint.h"

namespace deltad {

struct TextChange {
  std::string name;     // "tokenizer.json", …
  std::string content;  // of the file that goes with the variant
  std::string reason;   // what differs, for people
};

// Empty if the base's files hold for the fine-tune as well.
Result<std::vector<TextChange>> text_changes(const Checkpoint& base, const Tune& tune);

}  // namespace deltad
