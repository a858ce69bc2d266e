// deltactl compress: makes a variant file (or folder) from a fine-tuned model or a LoRA adapter,
// and reports what the compression costs in accuracy and saves in size.
#include "delta/compress.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "backend/backend.h"
#include "base/log.h"
#include "calibrate/calibrated_fitter.h"
#include "delta/checkpoint_text.h"
#include "delta/text_changes.h"
#include "delta/variant_output.h"
#include "deltactl/commands.h"
#include "deltactl/console.h"
#include "distill/distilled_fitter.h"
#include "io/file_reader.h"

namespace deltad {
namespace {

struct Options {
  std::string base, model, adapter, output, name;
  std::string alpha = "row", calibrate, budget;
  int levels = 1, jobs = 0, effort = 1, distill = 0;
  std::optional<int64_t> residual_rank;  // none: 0, or what a budget buys
  bool weights_only = false, json = false;
};

nlohmann::ordered_json kind_json(const KindReport& kind) {
  return {{"kind", kind.kind},
          {"matrices", kind.matrices},
          {"relative_delta", kind.relative_delta()},
          {"relative_error", kind.relative_error()},
          {"zero_share", kind.zero_share()},
          {"bytes", kind.bytes},
          {"ratio", kind.ratio()}};
}

void print_report(const CompressReport& report, const Options& options) {
  fmt::print("{:<12} {:>8} {:>9} {:>9} {:>8} {:>11} {:>8}\n", "kind", "matrices", "‖Δ‖/‖W‖",
             "rel.error", "Δ = 0", "size", "ratio");
  const auto line = [](const KindReport& kind) {
    fmt::print("{:<12} {:>8} {:>9.5f} {:>9.3f} {:>6.1f} % {:>11} {:>8.1f}\n", kind.kind,
               kind.matrices, kind.relative_delta(), kind.relative_error(), 100 * kind.zero_share(),
               human_bytes(kind.bytes), kind.ratio());
  };
  for (const KindReport& kind : report.kinds) line(kind);
  line(report.total);
  fmt::print("\n{} tensors carried whole ({}), {} equal to the base's and left out\n",
             report.dense_tensors, human_bytes(report.dense_bytes), report.equal_tensors);
  fmt::print("{} in all, {:.1f} times smaller than the model in bf16 ({})\n",
             human_bytes(report.file_bytes),
             static_cast<double>(report.model_bytes) / static_cast<double>(report.file_bytes),
             human_bytes(report.model_bytes));
  if (report.suggested_levels != 0)
    fmt::print("The error of {} is above {}: try --levels {}.\n",
               fmt::join(report.large_errors, ", "), kLargeError, report.suggested_levels);
  fmt::print("{}\n", options.output);
}

constexpr int64_t kDistillTokens = 8192;  // that --distill learns from at most

// What fits to the text.
struct Calibration {
  std::unique_ptr<CalibratedFitter> closed;  // null: the distilled one has it
  std::unique_ptr<DistilledFitter> distilled;

  LayerFitter* fitter() const {
    return distilled ? static_cast<LayerFitter*>(distilled.get()) : closed.get();
  }
  const CalibrationReport& report() const {
    return distilled ? distilled->closed().report() : closed->report();
  }
};

// What is asked of the calibration.
struct CalibrationPlan {
  CalibrationOptions fit;
  CalibrationSet set;
  std::vector<TokenSequence> distilled_on;
};

// Before the work, refuses options that cannot be met. Null if nothing is to be calibrated: by
// --calibrate none, or because the model has no tokenizer.
Result<std::unique_ptr<CalibrationPlan>> plan_calibration(const Checkpoint& base,
                                                          const Options& options) {
  if (options.calibrate == "none") {
    for (const auto& [given, option] :
         {std::pair{!options.budget.empty(), "--budget"},
          std::pair{options.residual_rank.value_or(0) > 0, "--residual-rank"},
          std::pair{options.distill > 0, "--distill"}})
      if (given)
        return invalid_argument(
            fmt::format("{} goes by calibration text; it cannot be with --calibrate none", option));
    return std::unique_ptr<CalibrationPlan>();
  }
  ASSIGN_OR_RETURN(const auto text, checkpoint_text(base));
  if (!text) {
    if (!options.calibrate.empty() || !options.budget.empty() ||
        options.residual_rank.value_or(0) > 0 || options.distill > 0)
      return invalid_argument(options.base + ": the model has no tokenizer to read the text with");
    log_warning("{}: the model has no tokenizer, so nothing is calibrated", options.base);
    return std::unique_ptr<CalibrationPlan>();
  }
  if (options.distill > 0) RETURN_IF_ERROR(DistilledFitter::check_size(base));
  auto plan = std::make_unique<CalibrationPlan>();
  CalibrationOptions& fit = plan->fit;
  fit.source = options.calibrate.empty()
                   ? "shipped"
                   : std::filesystem::path(options.calibrate).filename().string();
  fit.alpha_per_row = options.alpha == "row";
  fit.levels = options.levels;
  fit.effort = options.effort;
  fit.residual_rank = options.residual_rank.value_or(0);
  if (!options.budget.empty()) {
    ASSIGN_OR_RETURN(fit.budget, LevelBudget::parse(options.budget));
    fit.budget_buys_rank = !options.residual_rank;
  }
  fit.jobs = thread_count(options.jobs);
  std::string content(shipped_calibration_text());
  if (!options.calibrate.empty()) {
    ASSIGN_OR_RETURN(content, read_file(options.calibrate));
  }
  const std::string name =
      options.calibrate.empty() ? "the shipped calibration text" : options.calibrate;
  ASSIGN_OR_RETURN(plan->set, read_calibration(*text, name, content));
  if (!plan->set.note.empty()) log_warning("{}", plan->set.note);
  if (options.distill == 0) return plan;
  // The same sequences are held out of it.
  CalibrationTokens tokens;
  tokens.fit = kDistillTokens;
  ASSIGN_OR_RETURN(CalibrationSet all, read_calibration(*text, name, content, tokens));
  plan->distilled_on = std::move(all.fit);
  return plan;
}

Result<std::unique_ptr<Calibration>> calibrate(const Checkpoint& base, const Tune& tune,
                                               const CalibrationPlan& plan,
                                               const Options& options) {
  auto calibration = std::make_unique<Calibration>();
  CalibrationOptions fit = plan.fit;
  ProgressBar bar("plan");
  fit.plan_progress = bar.callback();
  ASSIGN_OR_RETURN(calibration->closed, CalibratedFitter::make(base, tune, plan.set, fit));
  if (options.distill == 0) return calibration;
  DistillOptions distill;
  distill.steps = options.distill;
  distill.jobs = fit.jobs;
  ProgressBar steps("distill");
  distill.progress = steps.callback();
  ASSIGN_OR_RETURN(calibration->distilled,
                   DistilledFitter::make(base, tune, std::move(calibration->closed),
                                         plan.distilled_on, distill));
  return calibration;
}

// A variant that closes less of the KL gap between base and fine-tune is warned of.
constexpr double kEnoughClosed = 0.9;
constexpr int64_t kAdvisedRank = 16;

constexpr const char* kNotFinite =
    "The outputs are not finite numbers: weights of the fine-tune, or of the variant, are too "
    "large. Do not serve it.";

// The option that would close more, the cheapest first; "" if enough is closed or nothing would.
std::string advice_on(const CalibrationReport& report, const KindReport& total,
                      const Options& options) {
  if (!report.heads.finite() || report.heads.closed() >= kEnoughClosed || total.matrices == 0)
    return "";
  if (options.effort == 0 && options.alpha == "row") return "--effort 1, at the same size";
  if (options.alpha == "matrix") return "--alpha row";
  if (!options.budget.empty() && options.residual_rank == 0)
    return "--budget without --residual-rank 0";
  if (options.budget.empty() && options.residual_rank.value_or(0) == 0) {
    const double bits = static_cast<double>(8 * kAdvisedRank * total.rank_bytes) /
                        static_cast<double>(total.weights);
    return fmt::format("--residual-rank {}, for {:.2f} bits a weight", kAdvisedRank, bits);
  }
  if (!options.budget.empty()) return "a larger --budget than " + options.budget;
  return options.levels < kMaxLevels ? fmt::format("--levels {}", options.levels + 1) : "";
}

void print_calibration(const CalibrationReport& report, const KindReport& total,
                       const Options& options) {
  fmt::print("\nOn {} held-out tokens, from the fine-tune:\n", report.held_tokens);
  if (!report.heads.finite()) {
    fmt::print("  {}\n", kNotFinite);
    return;
  }
  fmt::print("  KL {:.5f} nats (base {:.5f}: {:.1f} % of the gap is closed)\n",
             report.heads.variant.kl, report.heads.base.kl, 100 * report.heads.closed());
  fmt::print("  most likely token the same: {:.1f} % (base {:.1f} %)\n",
             100 * report.heads.variant.top1, 100 * report.heads.base.top1);
  fmt::print("  relative error of the outputs:");
  for (const auto& [kind, error] : report.output_errors) fmt::print(" {} {:.3f}", kind, error);
  fmt::print(
      "\n  (rel.error above is that of the weights: it grows where the outputs' error falls)\n");
  if (const std::string advice = advice_on(report, total, options); !advice.empty())
    fmt::print("Less than {:.0f} % of the gap is closed: try {}.\n", 100 * kEnoughClosed, advice);
}

nlohmann::ordered_json calibration_json(const CalibrationReport& report) {
  nlohmann::ordered_json errors = nlohmann::ordered_json::object();
  for (const auto& [kind, error] : report.output_errors) errors[kind] = error;
  return {{"tokens", report.fit_tokens},       {"held_out_tokens", report.held_tokens},
          {"kl", report.heads.variant.kl},     {"kl_base", report.heads.base.kl},
          {"top1", report.heads.variant.top1}, {"top1_base", report.heads.base.top1},
          {"closed", report.heads.closed()},   {"output_error", errors}};
}

void print_distilled(const DistillReport& report) {
  fmt::print("Distilled on {} tokens: KL {:.5f}, by the closed form {:.5f}: {}.\n", report.tokens,
             report.distilled, report.closed_form,
             report.taken ? "taken" : "the closed form is kept");
  if (report.taken) fmt::print("(The relative error of the outputs is that of the closed form.)\n");
}

nlohmann::ordered_json distilled_json(const DistillReport& report) {
  return {{"tokens", report.tokens},
          {"kl", report.distilled},
          {"kl_closed_form", report.closed_form},
          {"taken", report.taken}};
}

Result<int> run(const Options& options) {
  if (options.model.empty() == options.adapter.empty())
    return invalid_argument("give either --model or --adapter");
  ASSIGN_OR_RETURN(const auto base, Checkpoint::open(options.base));
  ASSIGN_OR_RETURN(const auto tune, options.adapter.empty() ? open_tuned_model(*base, options.model)
                                                            : open_adapter(*base, options.adapter));
  std::vector<TextChange> changes;
  if (!options.weights_only) {
    ASSIGN_OR_RETURN(changes, text_changes(*base, *tune));
  }
  const VariantOutput output = variant_output(options.output, options.name);
  RETURN_IF_ERROR(check_output(output, changes));
  ASSIGN_OR_RETURN(const std::unique_ptr<CalibrationPlan> plan, plan_calibration(*base, options));
  std::unique_ptr<Calibration> calibration;
  if (plan) {
    ASSIGN_OR_RETURN(calibration, calibrate(*base, *tune, *plan, options));
  }
  RETURN_IF_ERROR(write_text_changes(output, changes));
  Result<CompressReport> report = internal_error("not run");
  {
    ProgressBar bar("compress " + output.name);
    CompressOptions compress_options;
    compress_options.variant = output.name;
    compress_options.created_by = std::string("deltactl ") + kDeltactlVersion;
    compress_options.alpha_per_row = options.alpha == "row";
    compress_options.levels = options.levels;
    compress_options.jobs = thread_count(options.jobs);
    compress_options.progress = bar.callback();
    if (calibration) compress_options.fitter = calibration->fitter();
    report = compress(*base, *tune, output.file, compress_options);
  }
  if (!report.ok()) return report.status();
  if (!options.json) {
    print_report(*report, options);
    if (calibration) print_calibration(calibration->report(), report->total, options);
    if (calibration && calibration->distilled) print_distilled(calibration->distilled->report());
    for (const TextChange& change : changes)
      fmt::print("with its own {}: {}\n", change.name, change.reason);
    return 0;
  }
  nlohmann::ordered_json kinds = nlohmann::ordered_json::array();
  for (const KindReport& kind : report->kinds) kinds.push_back(kind_json(kind));
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const TextChange& change : changes)
    files.push_back({{"name", change.name}, {"reason", change.reason}});
  nlohmann::ordered_json document = {{"file", output.file},
                                     {"variant", output.name},
                                     {"alpha", options.alpha},
                                     {"levels", report->levels},
                                     {"digest", report->digest},
                                     {"base_digest", report->base_digest},
                                     {"kinds", kinds},
                                     {"total", kind_json(report->total)},
                                     {"dense_tensors", report->dense_tensors},
                                     {"dense_bytes", report->dense_bytes},
                                     {"equal_tensors", report->equal_tensors},
                                     {"bytes", report->file_bytes},
                                     {"model_bytes", report->model_bytes},
                                     {"text_files", files}};
  if (calibration) {
    const CalibrationReport& costs = calibration->report();
    document["calibration"] = calibration_json(costs);
    if (calibration->distilled)
      document["distilled"] = distilled_json(calibration->distilled->report());
    if (!costs.heads.finite()) document["calibration"]["warning"] = kNotFinite;
    if (const std::string advice = advice_on(costs, report->total, options); !advice.empty())
      document["calibration"]["advice"] = advice;
  }
  if (report->suggested_levels != 0) document["suggested_levels"] = report->suggested_levels;
  print_json(document);
  return 0;
}

}  // namespace

void add_compress(Command& app, int* exit_code) {
  Command* command =
      app.add_subcommand("compress", "Make a variant file from a fine-tune and its base");
  auto options = std::make_shared<Options>();
  command->add_option("--base", options->base, "The base model: a folder or a .gguf file")
      ->required();
  auto* model = command->add_option("--model", options->model, "The fine-tuned model");
  auto* adapter = command->add_option("--adapter", options->adapter,
                                      "A LoRA adapter for the base: a PEFT folder or a .gguf file");
  model->excludes(adapter);
  command
      ->add_option("-o,--output", options->output,
                   "NAME.delta.safetensors, or a folder, which also takes the fine-tune's own "
                   "tokenizer, template and generation settings")
      ->required();
  command->add_option("--name", options->name, "The variant's name (default: from the output)");
  command->add_option("--alpha", options->alpha, "One scale a row or one a matrix")
      ->one_of({"row", "matrix"})
      ->show_default();
  auto* levels = command->add_option("--levels", options->levels, "Signs a weight")
                     ->range(1, kMaxLevels)
                     ->show_default();
  command
      ->add_option("--budget", options->budget,
                   "Bits a weight on average, such as 1.5bit, or bytes of signs, scales and "
                   "low-rank parts: each matrix gets the levels that pay most and, above 1bit, the "
                   "rank of such a part")
      ->excludes(levels);
  command
      ->add_option("--residual-rank", options->residual_rank,
                   "Rank of a low-rank part beside the signs, in 8 bits (0: none). A budget counts "
                   "it; without this option it chooses ranks itself (0: a file for readers that "
                   "know signs alone)")
      ->range(int64_t{0}, kMaxLowRank);
  command->add_option(
      "--calibrate", options->calibrate,
      "Text to fit the scales to, JSON lines of chats or plain text; none: they are "
      "means of |Δ| (default: a small mixture that deltactl brings along)");
  command->add_option("--effort", options->effort, "Passes over the signs; 0: scales only")
      ->range(0, 16)
      ->show_default();
  command
      ->add_option("--distill", options->distill,
                   "Steps of gradient descent on the scales, towards the fine-tune's logits; taken "
                   "only if nearer on held-out text (small models)")
      ->range(0, 10000);
  command->add_option("--jobs", options->jobs, "Threads (0: one a core)")->range(0, 1024);
  command->add_flag("--weights-only", options->weights_only,
                    "Leave the fine-tune's text files behind");
  add_json_option(command, &options->json);
  run_command(command, exit_code, &options->json, [options] { return run(*options); });
}

}  // namespace deltad
