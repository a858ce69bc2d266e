// deltactl merge: merges fine-tunes of one base, of any form, into one, of any form.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "deltactl/commands.h"
#include "deltactl/console.h"
#include "deltactl/merge_output.h"
#include "deltactl/merge_report.h"
#include "merge/elementwise.h"
#include "merge/merge_sources.h"
#include "merge/monosoup_merge.h"
#include "merge/opcm_state.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string method;
  std::string base;
  std::vector<std::string> sources;
  MergeOutputOptions output;
  std::string default_form = "model";
  uint64_t memory = 0;
  int jobs = 0;
  bool json = false;
  // of the methods
  std::string form = "published", state;
  std::vector<std::string> keep;
  double share = 0.5;
  ElementwiseOptions elementwise;
};

// What all methods work with.
struct Work {
  const Options& options;
  const Checkpoint& base;
  const MergeSources& sources;
  MemoryAccount memory;
  int jobs = 1;
};

// Threads such that the largest tensor on each of them fits the memory that was given.
Result<int> settle_jobs(const Options& options, const MergeSources& sources,
                        const std::function<int64_t(const Shape&)>& bytes_for) {
  int64_t most = 0;
  for (const auto& [name, tensor] : sources.tensors())
    if (tensor.as_delta)
      most = std::max(most,
                      bytes_for(tensor.shape) + merge_output_bytes(options.output, tensor.shape));
  const int jobs = thread_count(options.jobs);
  if (options.memory == 0 || most == 0) return jobs;
  const int64_t fit = static_cast<int64_t>(options.memory) / most;
  if (fit == 0)
    return resource_exhausted(
        fmt::format("the largest matrix needs {} at once, more than the {} of --memory",
                    human_bytes(most), human_bytes(static_cast<int64_t>(options.memory))));
  return static_cast<int>(std::min<int64_t>(jobs, fit));
}

// figures: of the method; called when all tensors have been computed.
Status finish(Work* work, const Tune& tune, const std::function<Json()>& figures) {
  const Options& options = work->options;
  ASSIGN_OR_RETURN(const Json written,
                   write_merge_output(work->base, tune, work->sources.tune(0).path(),
                                      options.output, work->jobs, &work->memory));
  Json document = {{"output", options.output.path},
                   {"form", options.output.form},
                   {"method", options.method},
                   {"sources", options.sources}};
  document.update(figures());
  document.update(written);
  document["jobs"] = work->jobs;
  document["peak_bytes"] = work->memory.peak();
  if (options.json)
    print_json(document);
  else
    print_merge_report(document);
  return {};
}

Status run_monosoup(Work* work) {
  const Options& options = work->options;
  const bool published = options.form == "published";
  if (published && work->sources.count() != 1)
    return invalid_argument(
        fmt::format("the published form takes one source, not {}; --form averaged takes several",
                    work->sources.count()));
  const auto form = published ? MonosoupMerge::Form::kPublished : MonosoupMerge::Form::kAveraged;
  ASSIGN_OR_RETURN(KeepRules rules, KeepRules::parse(options.keep));
  ASSIGN_OR_RETURN(work->jobs, settle_jobs(options, work->sources, [&](const Shape& shape) {
                     return MonosoupMerge::bytes_for(shape, form);
                   }));
  const MonosoupMerge merge(work->sources, form, std::move(rules), work->jobs, &work->memory);
  return finish(work, merge, [&] {
    Json tensors = Json::array();
    for (const MonosoupReport& report : merge.reports())
      tensors.push_back({{"name", report.name},
                         {"source", options.sources[report.source]},
                         {"changed", report.figures.changed},
                         {"k", report.figures.k},
                         {"energy", report.figures.energy},
                         {"lambda_low", report.figures.lambda_low},
                         {"lambda_high", report.figures.lambda_high}});
    return Json{{"method_form", options.form}, {"tensors", tensors}};
  });
}

// A state file that lives as long as the merge.
class StateFile {
 public:
  StateFile(const std::string& asked, const std::string& output)
      : path_(asked.empty() ? fmt::format("{}.opcm-{}", output, ::getpid()) : asked),
        temporary_(asked.empty()) {}
  ~StateFile() {
    std::error_code ignored;
    if (temporary_) std::filesystem::remove(path_, ignored);
  }
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const bool temporary_;
};

// How many of the sources the state has already, which must be the first ones of those given.
Result<size_t> merged_already(const OpcmState& state, const MergeSources& sources) {
  size_t already = 0;
  for (size_t s = 0; s < sources.count(); ++s) {
    ASSIGN_OR_RETURN(const std::string identity, sources.identity(s));
    const bool known = std::any_of(state.merged().begin(), state.merged().end(),
                                   [&](const auto& one) { return one.identity == identity; });
    if (known && already != s)
      return invalid_argument(
          fmt::format("{}: it holds {} already, which comes here after {}, that it does not hold",
                      state.path(), sources.tune(s).path(), sources.tune(s - 1).path()));
    already += known;
  }
  return already;
}

Status run_opcm(Work* work) {
  const Options& options = work->options;
  ASSIGN_OR_RETURN(work->jobs, settle_jobs(options, work->sources, opcm_bytes_for));
  const StateFile file(options.state, options.output.path);
  std::unique_ptr<OpcmState> state;
  size_t next = 0;
  if (file_exists(file.path())) {
    ASSIGN_OR_RETURN(OpcmState found, OpcmState::open(file.path()));
    RETURN_IF_ERROR(found.check(work->sources, options.share));
    ASSIGN_OR_RETURN(next, merged_already(found, work->sources));
    state = std::make_unique<OpcmState>(std::move(found));
  }
  Json steps = Json::array();
  for (; next < work->sources.count(); ++next) {
    const std::string& path = work->sources.tune(next).path();
    ProgressBar bar("merging " + path);
    OpcmOptions step;
    step.share = options.share;
    step.jobs = work->jobs;
    step.memory = &work->memory;
    step.progress = bar.callback();
    ASSIGN_OR_RETURN(const std::vector<OpcmReport> reports,
                     opcm_step(state.get(), work->sources, next, step, file.path()));
    ASSIGN_OR_RETURN(OpcmState after, OpcmState::open(file.path()));
    state = std::make_unique<OpcmState>(std::move(after));
    Json tensors = Json::array();
    for (const OpcmReport& report : reports)
      tensors.push_back({{"name", report.name},
                         {"rank", report.figures.rank},
                         {"kept_norm", report.figures.kept_norm}});
    steps.push_back({{"source", path}, {"lambda", state->lambda()}, {"tensors", tensors}});
  }
  Json merged = Json::array();
  for (const OpcmState::Merged& one : state->merged()) merged.push_back(one.path);
  const OpcmMerge merge(work->base, *state, &work->sources.tune(0));
  return finish(work, merge, [&] {
    return Json{{"merged", merged}, {"lambda", state->lambda()}, {"steps", steps}};
  });
}

Status run_elementwise(Work* work, ElementwiseOptions::Method method) {
  const Options& options = work->options;
  ElementwiseOptions elementwise = options.elementwise;
  elementwise.method = method;
  if (elementwise.weights.empty()) elementwise.weights.assign(work->sources.count(), 1);
  if (elementwise.weights.size() != work->sources.count())
    return invalid_argument(fmt::format("--weights has {} numbers for {} sources",
                                        elementwise.weights.size(), work->sources.count()));
  double sum = 0;
  for (const double w : elementwise.weights) {
    if (!std::isfinite(w) || w < 0)
      return invalid_argument(fmt::format("a weight is {}, expected 0 or more", w));
    sum += w;
  }
  if (sum <= 0) return invalid_argument("the weights are all 0");
  ASSIGN_OR_RETURN(work->jobs,
                   settle_jobs(options, work->sources, [](const Shape&) { return int64_t{0}; }));
  const ElementwiseMerge merge(work->sources, elementwise);
  return finish(work, merge, [&] { return Json{{"weights", elementwise.weights}}; });
}

Result<int> run(Options* options) {
  RETURN_IF_ERROR(settle_merge_output(&options->output, options->default_form));
  ASSIGN_OR_RETURN(const auto base, Checkpoint::open(options->base));
  ASSIGN_OR_RETURN(const MergeSources sources,
                   MergeSources::open(*base, options->sources, thread_count(options->jobs)));
  Work work{*options, *base, sources, {}, 1};
  using Method = ElementwiseOptions::Method;
  if (options->method == "monosoup")
    RETURN_IF_ERROR(run_monosoup(&work));
  else if (options->method == "opcm")
    RETURN_IF_ERROR(run_opcm(&work));
  else
    RETURN_IF_ERROR(run_elementwise(&work, options->method == "task-arithmetic"
                                               ? Method::kTaskArithmetic
                                           : options->method == "ties" ? Method::kTies
                                           : options->method == "dare" ? Method::kDare
                                                                       : Method::kSoup));
  return 0;
}

std::shared_ptr<Options> add_method(Command* merge, int* exit_code, const std::string& name,
                                    const std::string& description, Command** command) {
  auto options = std::make_shared<Options>();
  options->method = name;
  if (name == "lora") options->default_form = "lora";
  *command = merge->add_subcommand(name, description);
  (*command)
      ->add_option("--base", options->base, "The base model: a folder or a .gguf file")
      ->required();
  (*command)
      ->add_option(
          "sources", options->sources,
          "Fine-tunes of the base: model folders, .gguf files, PEFT LoRA folders, variants")
      ->required();
  add_merge_output_options(*command, &options->output, options->default_form);
  (*command)
      ->add_option("--memory", options->memory,
                   "Fewer threads if the matrices at work would need more than this (\"8GB\")")
      ->byte_size();
  (*command)->add_option("--jobs", options->jobs, "Threads (0: one a core)")->range(0, 1024);
  add_json_option(*command, &options->json);
  run_command(*command, exit_code, &options->json, [options] { return run(options.get()); });
  return options;
}

}  // namespace

void add_merge(Command& app, int* exit_code) {
  Command* merge = app.add_subcommand("merge", "Merge fine-tunes of one base into one");
  merge->require_subcommand();
  Command* command = nullptr;

  auto monosoup = add_method(merge, exit_code, "monosoup",
                             "Keep each task vector's leading singular directions", &command);
  command
      ->add_option("--form", monosoup->form,
                   "published: reweights the two parts of one source; averaged: the mean of "
                   "several sources' leading parts")
      ->one_of({"published", "averaged"})
      ->show_default();
  command->add_option("--keep", monosoup->keep,
                      "What leads: a share of the energy (0.8), effective, rank:16 or all; "
                      "KIND=RULE for one kind of matrix (down_proj=0.9). May be repeated");

  auto opcm = add_method(merge, exit_code, "opcm",
                         "One after the other, each orthogonal to what is there", &command);
  command->add_option("--share", opcm->share, "Share of Σσ whose directions are protected")
      ->range(0.0, 1.0)
      ->show_default();
  command->add_option("--state", opcm->state,
                      "File that keeps the sequence, to go on with after a stop or with further "
                      "sources");

  const auto weights = [&](const std::shared_ptr<Options>& options) {
    command
        ->add_option("--weights", options->elementwise.weights, "One a source: 0.7,0.3 (default 1)")
        ->delimiter(',');
  };
  const auto scaling = [&](const std::shared_ptr<Options>& options) {
    weights(options);
    command->add_option("--lambda", options->elementwise.lambda, "Factor of the result")
        ->show_default();
  };
  weights(add_method(merge, exit_code, "soup", "The weighted mean", &command));
  scaling(add_method(merge, exit_code, "task-arithmetic", "The weighted sum of the task vectors",
                     &command));
  auto ties = add_method(merge, exit_code, "ties", "The largest entries, by the sign that prevails",
                         &command);
  scaling(ties);
  command->add_option("--density", ties->elementwise.density, "Share of the entries that is kept")
      ->range(0.0, 1.0)
      ->show_default();
  auto dare = add_method(merge, exit_code, "dare", "The sum of task vectors thinned out at random",
                         &command);
  scaling(dare);
  command->add_option("--drop", dare->elementwise.drop, "Probability of an entry to be dropped")
      ->range(0.0, 0.999999)
      ->show_default();
  command->add_option("--seed", dare->elementwise.seed, "Of the choice")->show_default();
  add_method(merge, exit_code, "lora", "Turn a fine-tune into a LoRA adapter", &command);
}

}  // namespace deltad
