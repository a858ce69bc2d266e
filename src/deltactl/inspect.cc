// deltactl inspect: what a variant file says about itself, without reading its values; what a LoRA
// adapter is.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "delta/delta_file.h"
#include "delta/variant_path.h"
#include "deltactl/commands.h"
#include "deltactl/console.h"
#include "deltactl/inspect_adapter.h"

namespace deltad {
namespace {

struct Options {
  std::string path, base;
  bool json = false;
};

void print_header(const DeltaFile& delta, int64_t bytes) {
  const VariantHeader& header = delta.header();
  const auto line = [](const char* key, const std::string& value) {
    fmt::print("{:<13} {}\n", key, value);
  };
  line("file", delta.path());
  line("variant", header.variant);
  line("base", header.base_name);
  line("base digest", header.base_digest.empty() ? "none (unchecked)" : header.base_digest);
  line("architecture", header.architecture);
  line("digest", header.digest);
  line("alpha", header.alpha_per_row ? "row" : "matrix");
  line("levels", std::to_string(header.levels));
  if (header.tie_word_embeddings) line("tied head", *header.tie_word_embeddings ? "true" : "false");
  line("created by", header.created_by);
  const auto& metadata = delta.file().metadata();
  const auto value = [&](const char* key) {
    const auto at = metadata.find(key);
    return at == metadata.end() ? std::string() : at->second;
  };
  if (!value("kl").empty()) {
    line("calibrated",
         fmt::format("{} text, {} tokens; measured on {} others", value("calibration"),
                     value("calibration_tokens"), value("held_out_tokens")));
    line("KL", fmt::format("{} nats from the fine-tune (base {})", value("kl"), value("kl_base")));
    line("top-1", fmt::format("{} as the fine-tune (base {})", value("top1"), value("top1_base")));
    line("output error", value("output_error"));
    if (!value("residual_rank").empty()) line("residual rank", value("residual_rank"));
  }
  line("tensors", fmt::format("{} ({} matrices as signs, {} with a low-rank part, {} dense), {}",
                              delta.file().tensors().size(), delta.matrices().size(),
                              delta.low_rank().size(), delta.dense().size(), human_bytes(bytes)));
}

Result<int> run(const Options& options) {
  if (is_adapter(options.path)) {
    RETURN_IF_ERROR(inspect_adapter(options.path, options.base, options.json));
    return 0;
  }
  ASSIGN_OR_RETURN(const DeltaFile delta, DeltaFile::open(options.path));
  int64_t bytes = 0;
  for (const auto& [name, entry] : delta.file().tensors()) bytes += entry.bytes;
  if (!options.json) {
    print_header(delta, bytes);
    fmt::print("\n{:<56} {:<5} {:<16} {:>10}\n", "tensor", "type", "shape", "size");
    for (const auto& [name, entry] : delta.file().tensors())
      fmt::print("{:<56} {:<5} {:<16} {:>10}\n", name, dtype_name(entry.dtype), entry.shape.str(),
                 human_bytes(entry.bytes));
    return 0;
  }
  nlohmann::ordered_json metadata = nlohmann::ordered_json::object();
  for (const auto& [key, value] : delta.file().metadata()) metadata[key] = value;
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const auto& [name, entry] : delta.file().tensors()) {
    nlohmann::ordered_json shape = nlohmann::ordered_json::array();
    for (int i = 0; i < entry.shape.rank(); ++i) shape.push_back(entry.shape[i]);
    tensors.push_back({{"name", name},
                       {"type", dtype_name(entry.dtype)},
                       {"shape", shape},
                       {"bytes", entry.bytes}});
  }
  print_json({{"file", delta.path()},
              {"metadata", metadata},
              {"matrices", delta.matrices().size()},
              {"low_rank_parts", delta.low_rank().size()},
              {"dense_tensors", delta.dense().size()},
              {"bytes", bytes},
              {"tensors", tensors}});
  return 0;
}

}  // namespace

void add_inspect(Command& app, int* exit_code) {
  Command* command = app.add_subcommand(
      "inspect", "Show a variant's metadata, tensors and sizes; an adapter's modules and scales");
  auto options = std::make_shared<Options>();
  command->add_option("file", options->path, "A variant file or folder, or a LoRA adapter")
      ->required();
  command->add_option("--base", options->base,
                      "Of a LoRA adapter: the base whose modules it is to change");
  add_json_option(command, &options->json);
  run_command(command, exit_code, &options->json, [options] { return run(*options); });
}

}  // namespace deltad
