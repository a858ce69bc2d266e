#include "engine/base_model.h"

#include <filesystem>
#include <thread>

#include "base/log.h"

namespace deltad {
namespace {

constexpr int kMostReaders = 4;  // threads that read the file: more do not make a disk faster

}  // namespace

std::string model_name_of(const std::string& path) {
  std::filesystem::path clean = std::filesystem::path(path).lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();  // a trailing slash
  return clean.extension() == ".gguf" ? clean.stem().string() : clean.filename().string();
}

Result<std::shared_ptr<const TextAssets>> checkpoint_text(const Checkpoint& checkpoint) {
  if (checkpoint.gguf() != nullptr) return load_text_assets(*checkpoint.gguf());
  return load_text_assets([&](const std::string& name) { return checkpoint.text_file(name); },
                          nullptr);
}

Result<std::unique_ptr<BaseModel>> load_base_model(const std::string& path,
                                                   const CpuBackendOptions& backend,
                                                   const Progress& progress) {
  auto model = std::make_unique<BaseModel>();
  model->name = model_name_of(path);
  ASSIGN_OR_RETURN(model->checkpoint, Checkpoint::open(path));
  if (model->checkpoint->gguf() == nullptr &&
      model->checkpoint->text_file("tokenizer.json").empty()) {
    log_warning("{} has no tokenizer.json: only token ids can be given and returned", path);
  } else {
    ASSIGN_OR_RETURN(model->text, checkpoint_text(*model->checkpoint));
  }
  ASSIGN_OR_RETURN(model->digest, base_digest(*model->checkpoint));
  model->table = make_weight_table(model->config());
  ASSIGN_OR_RETURN(model->backend, make_cpu_backend(backend));
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  RETURN_IF_ERROR(load_base(*model->checkpoint, model->table, *model->backend,
                            std::min(kMostReaders, std::max(1, cores)), progress));
  return model;
}

}  // namespace deltad
