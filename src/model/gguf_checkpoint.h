// A GGUF file as a Checkpoint: its tensors under their Hugging Face names, rows of q and k back in
// the hub's order.
#pragma once

#include <memory>
#include <string>

#include "io/gguf.h"
#include "model/checkpoint.h"

namespace deltad {

Result<std::unique_ptr<Checkpoint>> open_gguf_checkpoint(const std::string& path);
// Of a file that is open already.
Result<std::unique_ptr<Checkpoint>> make_gguf_checkpoint(std::unique_ptr<GgufFile> file);

}  // namespace deltad
