// deltactl verify: reads a variant file whole and checks it: structure, digest, finite values, and
// with a base also names, shapes, padding and that it was made for this base. Exit code 1 if the
// file is bad.
#include <fmt/format.h>

#include "delta/delta_reader.h"
#include "deltactl/commands.h"
#include "deltactl/console.h"
#include "model/checkpoint.h"

namespace deltad {
namespace {

struct Options {
  std::string path, base;
  int jobs = 0;
  bool json = false;
};

Status check(const Options& options, const Checkpoint* base, const std::string& digest,
             VariantHeader* header) {
  ASSIGN_OR_RETURN(const DeltaFile delta, DeltaFile::open(options.path));
  *header = delta.header();
  WeightTable table;
  DeltaReadOptions read;
  if (base != nullptr) {
    RETURN_IF_ERROR(delta.check_base(base->config().architecture, digest));
    table = make_weight_table(base->config());
    RETURN_IF_ERROR(delta.check_shapes(table));
    read.table = &table;
  }
  ProgressBar bar("verify");
  read.threads = thread_count(options.jobs);
  read.progress = bar.callback();
  return read_delta(delta, read);
}

Result<int> run(const Options& options) {
  std::unique_ptr<Checkpoint> base;
  std::string digest;
  if (!options.base.empty()) {
    ASSIGN_OR_RETURN(base, Checkpoint::open(options.base));
    ASSIGN_OR_RETURN(digest, base_digest(*base));
  }
  VariantHeader header;
  const Status status = check(options, base.get(), digest, &header);
  if (status.code() == Code::kNotFound) return status;
  const bool base_checked = base != nullptr && !header.base_digest.empty();
  if (options.json) {
    nlohmann::ordered_json document = {{"ok", status.ok()}};
    if (!status.ok()) document["error"] = status.message();
    document["digest"] = header.digest;
    document["base_digest"] = header.base_digest;
    document["base_checked"] = base_checked;
    print_json(document);
  } else if (status.ok()) {
    fmt::print("{}: good, digest {}\n", options.path, header.digest);
    if (base == nullptr)
      fmt::print("Shapes, padding and base were not checked: give --base for that.\n");
    else if (!base_checked)
      fmt::print("It does not say which base it was made for.\n");
  }
  if (!status.ok()) fmt::print(stderr, "deltactl: {}\n", status.message());
  return status.ok() ? 0 : 1;
}

}  // namespace

void add_verify(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "verify", "Check a variant file: digest, shapes, finite values; exit code 1 if it is bad");
  auto options = std::make_shared<Options>();
  command->add_option("file", options->path, "A variant file or folder")->required();
  command->add_option("--base", options->base, "The base model: a folder or a .gguf file");
  command->add_option("--jobs", options->jobs, "Threads (0: one a core)")
      ->check(CLI::Range(0, 1024));
  add_json_option(command, &options->json);
  run_command(command, exit_code, &options->json, [options] { return run(*options); });
}

}  // namespace deltad
