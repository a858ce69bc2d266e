// Which form of model a path holds.
#include "model/checkpoint.h"

#include <fmt/core.h>

#include "io/file_reader.h"
#include "model/gguf_checkpoint.h"
#include "model/hf_checkpoint.h"

namespace deltad {

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& path) {
  if (is_directory(path)) return open_hf_checkpoint(path);
  if (!file_exists(path))
    return not_found(
        fmt::format("no model at {}; expected a folder with config.json, or a .gguf file", path));
  if (!path.ends_with(".gguf"))
    return invalid_argument(
        fmt::format("{} is no model; expected a folder with config.json, or a .gguf file", path));
  return open_gguf_checkpoint(path);
}

}  // namespace deltad
