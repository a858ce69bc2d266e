#include "deltactl/model_session.h"

#include "delta/variant_path.h"
#include "deltactl/console.h"

namespace deltad {

Option* add_model_options(Command* command, ModelOptions* options, bool many) {
  Option* base =
      command
          ->add_option("--base", options->base, "Base model: a Hugging Face folder or a .gguf file")
          ->required();
  auto* delta = command->add_option(
      "--delta", options->deltas,
      "Variant: a *.delta.safetensors file, a folder with one, or a LoRA adapter");
  delta->type_name("PATH");
  if (!many) delta->values(1);
  command->add_option("--threads", options->threads, "Kernel threads (default: one a core)")
      ->range(0, 1024);
  command->add_option("--isa", options->isa,
                      "Instruction set: scalar, avx2, avx512, avx512_bf16 (default: the best)");
  return base;
}

Result<ModelSession> open_session(const ModelOptions& options) {
  ModelSession session;
  CpuBackendOptions backend;
  backend.threads = options.threads;
  backend.isa = options.isa;
  {
    ProgressBar bar("loading the base");
    ASSIGN_OR_RETURN(session.base, load_base_model(options.base, backend, bar.callback()));
  }
  VariantLoadOptions load;
  load.base_digest = session.base->digest;
  load.architecture = session.base->config().architecture;
  ProgressBar bar("loading variants");
  for (const std::string& path : options.deltas) {
    bar.update(static_cast<int64_t>(session.variants.size()),
               static_cast<int64_t>(options.deltas.size()));
    ASSIGN_OR_RETURN(VariantRef variant,
                     load_variant(variant_name_of(path), path, session.base->table,
                                  *session.base->backend, load));
    session.variants.push_back(std::move(variant));
  }
  return session;
}

}  // namespace deltad
