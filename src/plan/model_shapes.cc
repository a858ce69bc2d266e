#include "plan/model_shapes.h"

#include <fmt/core.h>

#include "io/file_reader.h"
#include "model/checkpoint.h"

namespace deltad {
namespace {

ModelConfig llama3(const char* name, int64_t hidden, int64_t layers, int64_t heads,
                   int64_t intermediate) {
  ModelConfig config;
  config.name = name;
  config.hidden = hidden;
  config.layers = layers;
  config.heads = heads;
  config.kv_heads = 8;
  config.head_dim = 128;
  config.intermediate = intermediate;
  config.vocab = 128256;
  config.max_positions = 131072;
  return config;
}

}  // namespace

Result<ModelConfig> planned_model(const std::string& name) {
  if (name == "8b") return llama3("Llama 3 8B", 4096, 32, 32, 14336);
  if (name == "70b") return llama3("Llama 3 70B", 8192, 80, 64, 28672);
  if (name.ends_with(".gguf")) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::open(name));
    ModelConfig config = checkpoint->config();
    config.name = name;
    return config;
  }
  const Result<std::string> json = read_file(name + "/config.json");
  if (!json.ok())
    return invalid_argument(fmt::format(
        "--model '{}': expected 8b, 70b, a folder with a config.json, or a .gguf file ({})", name,
        json.status().message()));
  auto config = parse_hf_config(*json, "");
  if (!config.ok()) return config.status().in(name);
  config->name = name;
  return config;
}

}  // namespace deltad
