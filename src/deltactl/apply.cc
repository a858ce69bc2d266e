// deltactl apply: writes what a variant or an adapter computes as a Hugging Face folder.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "delta/tune.h"
#include "delta/tune_folder.h"
#include "deltactl/commands.h"
#include "deltactl/console.h"

namespace deltad {
namespace {

struct Options {
  std::string base, delta, output, dtype = "bf16";
  int jobs = 0;
  bool json = false;
};

Result<int> run(const Options& options) {
  ASSIGN_OR_RETURN(const auto base, Checkpoint::open(options.base));
  // A variant file is checked whole here, before anything is written.
  ASSIGN_OR_RETURN(const std::unique_ptr<Tune> tune, open_tune(*base, options.delta));
  Result<TuneFolderReport> report = internal_error("not run");
  {
    ProgressBar bar("apply");
    TuneFolderOptions folder;
    folder.dtype = options.dtype == "f32" ? DType::kF32 : DType::kBF16;
    folder.text_path = options.delta;
    folder.jobs = thread_count(options.jobs);
    folder.progress = bar.callback();
    report = write_tune_folder(*base, *tune, options.output, folder);
  }
  if (!report.ok()) return report.status();
  const bool rounded = options.dtype == "bf16";
  if (options.json) {
    nlohmann::ordered_json document = {{"folder", options.output},
                                       {"dtype", options.dtype},
                                       {"tensors", report->tensors},
                                       {"bytes", report->bytes},
                                       {"changed_weights", report->weights}};
    if (rounded) document["lost_weights"] = report->lost;
    print_json(document);
    return 0;
  }
  fmt::print("{}: {} tensors, {}\n", options.output, report->tensors, human_bytes(report->bytes));
  if (rounded && report->weights > 0)
    fmt::print(
        "Rounding to bf16 left {} of {} weights ({:.1f} %) at the base's value, though their "
        "delta is not 0. The daemon loses none of them; neither does --dtype f32.\n",
        report->lost, report->weights,
        100.0 * static_cast<double>(report->lost) / static_cast<double>(report->weights));
  return 0;
}

}  // namespace

void add_apply(Command& app, int* exit_code) {
  Command* command =
      app.add_subcommand("apply", "Write the model that a variant stands for, as a folder");
  auto options = std::make_shared<Options>();
  command->add_option("--base", options->base, "The base model: a folder or a .gguf file")
      ->required();
  command->add_option("--delta", options->delta, "A variant file or folder, or a LoRA adapter")
      ->required();
  command->add_option("-o,--output", options->output, "The folder to write")->required();
  command->add_option("--dtype", options->dtype, "Type of the weights")
      ->one_of({"bf16", "f32"})
      ->show_default();
  command->add_option("--jobs", options->jobs, "Threads (0: one a core)")->range(0, 1024);
  add_json_option(command, &options->json);
  run_command(command, exit_code, &options->json, [options] { return run(*options); });
}

}  // namespace deltad
