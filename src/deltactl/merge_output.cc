#include "deltactl/merge_output.h"

#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "backend/backend.h"
#include "delta/compress.h"
#include "delta/text_changes.h"
#include "delta/tune_folder.h"
#include "delta/variant_output.h"
#include "deltactl/console.h"
#include "io/safetensors.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;

LoraFolderOptions lora_options(const MergeOutputOptions& options) {
  LoraFolderOptions lora;
  lora.rank = options.rank;
  lora.dtype = options.dtype == "bf16" ? DType::kBF16 : DType::kF32;
  lora.svd = options.svd == "exact"        ? SvdChoice::kExact
             : options.svd == "randomized" ? SvdChoice::kRandomized
                                           : SvdChoice::kAuto;
  return lora;
}

Result<Json> write_lora(const Checkpoint& base, const Tune& tune, const MergeOutputOptions& options,
                        int jobs, MemoryAccount* memory) {
  std::vector<TextChange> changes;
  if (!options.weights_only) {
    ASSIGN_OR_RETURN(changes, text_changes(base, tune));
  }
  ProgressBar bar("writing the LoRA");
  LoraFolderOptions lora = lora_options(options);
  lora.base_name = base.config().name;
  lora.jobs = jobs;
  lora.memory = memory;
  lora.progress = bar.callback();
  ASSIGN_OR_RETURN(const std::vector<LoraReport> reports,
                   write_lora_folder(base, tune, options.path, lora));
  for (const TextChange& change : changes)
    RETURN_IF_ERROR(
        write_file((std::filesystem::path(options.path) / change.name).string(), change.content));
  Json tensors = Json::array();
  for (const LoraReport& report : reports)
    tensors.push_back({{"name", report.name},
                       {"rank", report.rank},
                       {"kept_energy", report.kept_energy},
                       {"error", report.error},
                       {"svd", report.randomized ? "randomized" : "exact"}});
  return Json{{"rank", options.rank}, {"factors", tensors}};
}

Result<Json> write_sign(const Checkpoint& base, const Tune& tune, const MergeOutputOptions& options,
                        int jobs) {
  std::vector<TextChange> changes;
  if (!options.weights_only) {
    ASSIGN_OR_RETURN(changes, text_changes(base, tune));
  }
  const VariantOutput output = variant_output(options.path, options.name);
  RETURN_IF_ERROR(check_output(output, changes));
  RETURN_IF_ERROR(write_text_changes(output, changes));
  ProgressBar bar("writing the sign delta");
  CompressOptions compress_options;
  compress_options.variant = output.name;
  compress_options.created_by = std::string("deltactl ") + kDeltactlVersion;
  compress_options.alpha_per_row = options.alpha == "row";
  compress_options.levels = options.levels;
  compress_options.jobs = jobs;
  compress_options.progress = bar.callback();
  ASSIGN_OR_RETURN(const CompressReport report,
                   compress(base, tune, output.file, compress_options));
  return Json{{"file", output.file},
              {"digest", report.digest},
              {"relative_error", report.total.relative_error()},
              {"bytes", report.file_bytes}};
}

}  // namespace

void add_merge_output_options(Command* command, MergeOutputOptions* options,
                              const std::string& default_form) {
  command
      ->add_option("-o,--output", options->path,
                   "The folder to write, or NAME.delta.safetensors for a sign delta")
      ->required();
  command
      ->add_option("--as", options->form,
                   fmt::format("What to write (default: sign for a .safetensors path, else {})",
                               default_form))
      ->one_of({"model", "lora", "sign"});
  command->add_option("--rank", options->rank, "LoRA: rank of the factors")
      ->range(1, 65536)
      ->show_default();
  command->add_option("--svd", options->svd, "LoRA: how the factors are found")
      ->one_of({"auto", "exact", "randomized"})
      ->show_default();
  command
      ->add_option("--dtype", options->dtype,
                   "Type of a model's weights (default bf16) or of a LoRA's factors (default f32)")
      ->one_of({"bf16", "f32"});
  command->add_option("--name", options->name, "Sign delta: the variant's name");
  command->add_option("--alpha", options->alpha, "Sign delta: one scale a row or one a matrix")
      ->one_of({"row", "matrix"})
      ->show_default();
  command->add_option("--levels", options->levels, "Sign delta: signs a weight")
      ->range(1, kMaxLevels)
      ->show_default();
  command->add_flag("--weights-only", options->weights_only,
                    "Leave the text files of the first source behind");
}

Status settle_merge_output(MergeOutputOptions* options, const std::string& default_form) {
  const bool is_file = std::filesystem::path(options->path).extension() == ".safetensors";
  if (options->form.empty()) options->form = is_file ? "sign" : default_form;
  if (is_file && options->form != "sign")
    return invalid_argument(fmt::format("{}: a {} is written as a folder", options->path,
                                        options->form == "lora" ? "LoRA adapter" : "model"));
  return {};
}

int64_t merge_output_bytes(const MergeOutputOptions& options, const Shape& matrix) {
  return options.form == "lora" ? lora_bytes_for(matrix, lora_options(options)) : 0;
}

Result<Json> write_merge_output(const Checkpoint& base, const Tune& tune,
                                const std::string& text_path, const MergeOutputOptions& options,
                                int jobs, MemoryAccount* memory) {
  if (options.form == "lora") return write_lora(base, tune, options, jobs, memory);
  if (options.form == "sign") return write_sign(base, tune, options, jobs);
  ProgressBar bar("writing the model");
  TuneFolderOptions folder;
  folder.dtype = options.dtype == "f32" ? DType::kF32 : DType::kBF16;
  if (!options.weights_only) folder.text_path = text_path;
  folder.jobs = jobs;
  folder.progress = bar.callback();
  ASSIGN_OR_RETURN(const TuneFolderReport report,
                   write_tune_folder(base, tune, options.path, folder));
  return Json{{"dtype", options.dtype == "f32" ? "f32" : "bf16"}, {"bytes", report.bytes}};
}

}  // namespace deltad
