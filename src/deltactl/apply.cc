// deltactl apply: writes what a variant computes as a Hugging Face folder.
#include "delta/apply.h"

#include <fmt/format.h>

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
  ASSIGN_OR_RETURN(const DeltaFile delta, DeltaFile::open(options.delta));
  Result<ApplyReport> report = internal_error("not run");
  {
    ProgressBar bar("apply");
    ApplyOptions apply_options;
    apply_options.dtype = options.dtype == "f32" ? DType::kF32 : DType::kBF16;
    apply_options.jobs = thread_count(options.jobs);
    apply_options.progress = bar.callback();
    report = apply(*base, delta, options.delta, options.output, apply_options);
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

void add_apply(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("apply", "Write the model that a variant stands for, as a folder");
  auto options = std::make_shared<Options>();
  command->add_option("--base", options->base, "The base model: a folder or a .gguf file")
      ->required();
  command->add_option("--delta", options->delta, "A variant file or folder")->required();
  command->add_option("-o,--output", options->output, "The folder to write")->required();
  command->add_option("--dtype", options->dtype, "Type of the weights")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  command->add_option("--jobs", options->jobs, "Threads (0: one a core)")
      ->check(CLI::Range(0, 1024));
  add_json_option(command, &options->json);
  run_command(command, exit_code, &options->json, [options] { return run(*options); });
}

}  // namespace deltad
