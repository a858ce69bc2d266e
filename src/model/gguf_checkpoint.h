// A GGUF file as a Checkpoint: its tensors under their Hugging Face names, rows of q and k back in
// the hub's order.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "io/gguf.h"
#include "model/checkpoint.h"

namespace deltad {

// What the hub calls a tensor of a GGUF file ("blk.0.attn_q.weight").
struct GgufName {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  bool permuted;     // its rows are paired within each head for another way to rotate
};
std::optional<GgufName> hub_name_of(const std::string& gguf_name);

Result<std::unique_ptr<Checkpoint>> open_gguf_checkpoint(const std::string& path);
// Of a file that is open already.
Result<std::unique_ptr<Checkpoint>> make_gguf_checkpoint(std::unique_ptr<GgufFile> file);

}  // namespace deltad
