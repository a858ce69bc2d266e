// deltactl verify: reads a variant file or a LoRA adapter whole and checks it: structure, digest,
// finite values, and with a base also names, shapes, padding and that it was made for this base.
// Exit code 1 if it is bad.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "delta/delta_reader.h"
#include "delta/lora_adapter.h"
#include "delta/variant_path.h"
#include "delta/variant_reader.h"
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

struct Identity {
  std::string digest, base_digest;  // "": not known; that it names no base
};

Status check_variant(const Options& options, const Checkpoint* base, Identity* identity) {
  ASSIGN_OR_RETURN(const DeltaFile delta, DeltaFile::open(options.path));
  *identity = {delta.header().digest, delta.header().base_digest};
  WeightTable table;
  DeltaReadOptions read;
  if (base != nullptr) {
    ASSIGN_OR_RETURN(const std::string digest, base_digest(*base));
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

Status check_adapter(const Options& options, const Checkpoint* base, Identity* identity) {
  Result<LoraAdapter> adapter =
      base != nullptr ? LoraAdapter::open(options.path, make_weight_table(base->config()))
                      : LoraAdapter::open_without_base(options.path);
  RETURN_IF_ERROR(adapter.status());
  VariantLoadOptions load;
  load.threads = thread_count(options.jobs);
  ASSIGN_OR_RETURN(identity->digest, adapter_digest(*adapter, load));
  return {};
}

Result<int> run(const Options& options) {
  std::unique_ptr<Checkpoint> base;
  if (!options.base.empty()) {
    ASSIGN_OR_RETURN(base, Checkpoint::open(options.base));
  }
  Identity identity;
  const Status status = is_adapter(options.path) ? check_adapter(options, base.get(), &identity)
                                                 : check_variant(options, base.get(), &identity);
  if (status.code() == Code::kNotFound) return status;
  const bool base_checked = base != nullptr && !identity.base_digest.empty();
  if (options.json) {
    nlohmann::ordered_json document = {{"ok", status.ok()}};
    if (!status.ok()) document["error"] = status.message();
    document["digest"] = identity.digest;
    document["base_digest"] = identity.base_digest;
    document["base_checked"] = base_checked;
    document["shapes_checked"] = base != nullptr;
    print_json(document);
  } else if (status.ok()) {
    fmt::print("{}: good, digest {}\n", options.path,
               identity.digest.empty() ? "unknown without the base" : identity.digest);
    if (base == nullptr)
      fmt::print("Shapes, padding and base were not checked: give --base for that.\n");
    else if (!base_checked)
      fmt::print("It does not say which base it was made for.\n");
  }
  if (!status.ok()) fmt::print(stderr, "deltactl: {}\n", status.message());
  return status.ok() ? 0 : 1;
}

}  // namespace

void add_verify(Command& app, int* exit_code) {
  Command* command = app.add_subcommand(
      "verify",
      "Check a variant file or a LoRA adapter: digest, shapes, finite values; exit code 1 if it is "
      "bad");
  auto options = std::make_shared<Options>();
  command->add_option("file", options->path, "A variant file or folder, or a LoRA adapter")
      ->required();
  command->add_option("--base", options->base, "The base model: a folder or a .gguf file");
  command->add_option("--jobs", options->jobs, "Threads (0: one a core)")->range(0, 1024);
  add_json_option(command, &options->json);
  run_command(command, exit_code, &options->json, [options] { return run(*options); });
}

}  // namespace deltad
