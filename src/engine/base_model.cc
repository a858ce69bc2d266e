#include "engine/base_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/log.h"
#include "base/worker_team.h"
#include "delta/checkpoint_text.h"

namespace deltad {
namespace {

constexpr int kMostReaders = 4;  // threads that read the file: more do not make a disk faster

}  // namespace

std::string model_name_of(const std::string& path) {
  std::filesystem::path clean = std::filesystem::path(path).lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();  // a trailing slash
  return clean.extension() == ".gguf" ? clean.stem().string() : clean.filename().string();
}

namespace {

// All but where the weights go.
Result<std::unique_ptr<BaseModel>> open_base_model(const std::string& path) {
  auto model = std::make_unique<BaseModel>();
  model->name = model_name_of(path);
  ASSIGN_OR_RETURN(model->checkpoint, Checkpoint::open(path));
  ASSIGN_OR_RETURN(model->text, checkpoint_text(*model->checkpoint));
  if (!model->text)
    log_warning("{} has no tokenizer.json: only token ids can be given and returned", path);
  ASSIGN_OR_RETURN(model->digest, base_digest(*model->checkpoint));
  model->table = make_weight_table(model->config());
  return model;
}

Status load_weights(const BaseModel& model, const Progress& progress) {
  return load_base(*model.checkpoint, model.table, model.weights(),
                   std::min(kMostReaders, WorkerTeam::cores()), progress);
}

}  // namespace

Result<std::unique_ptr<BaseModel>> load_base_model(const std::string& path,
                                                   std::unique_ptr<Backend> backend,
                                                   const Progress& progress) {
  ASSIGN_OR_RETURN(std::unique_ptr<BaseModel> model, open_base_model(path));
  model->backend = std::move(backend);
  RETURN_IF_ERROR(load_weights(*model, progress));
  return model;
}

Result<std::unique_ptr<BaseModel>> load_base_model(const std::string& path, const MakeRanks& make,
                                                   const Progress& progress) {
  ASSIGN_OR_RETURN(std::unique_ptr<BaseModel> model, open_base_model(path));
  ASSIGN_OR_RETURN(model->parallel, make(model->config()));
  RETURN_IF_ERROR(load_weights(*model, progress));
  return model;
}

Result<std::unique_ptr<BaseModel>> load_base_model(const std::string& path,
                                                   const CpuBackendOptions& backend,
                                                   const Progress& progress,
                                                   const ParallelOptions& parallel) {
  if (parallel.ranks > 1) {
    const MakeRanks make = [&](const ModelConfig& config) {
      return make_parallel_cpu_backend(config, backend, parallel);
    };
    return load_base_model(path, make, progress);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> made, make_cpu_backend(backend));
  return load_base_model(path, std::move(made), progress);
}

}  // namespace deltad
