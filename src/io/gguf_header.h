// The header of a GGUF file, read and checked. Used by GgufFile only.
#pragma once

#include <map>
#include <string>

#include "io/gguf.h"

namespace deltad {

struct GgufHeader {
  std::map<std::string, GgufValue> metadata;
  std::map<std::string, GgufTensor> tensors;
};

// Errors do not name the file; the caller does.
Result<GgufHeader> read_gguf_header(const FileReader& file);

}  // namespace deltad
