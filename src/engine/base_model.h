// BaseModel: everything that a program holds of the base: the checkpoint it came from, its weights
// in a backend, its text assets and its identity. Made once at start (deltad, deltactl), then
// constant; outlives engine and router.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "model/checkpoint.h"
#include "model/loader.h"
#include "model/weight_table.h"
#include "parallel/parallel_backend.h"
#include "text/text_assets.h"

namespace deltad {

struct BaseModel {
  std::string name;    // the folder's or file's name
  std::string digest;  // base_digest
  std::unique_ptr<Checkpoint> checkpoint;
  WeightTable table;
  // Where its weights are: one of the two.
  std::unique_ptr<Backend> backend;
  std::unique_ptr<ParallelBackend> parallel;
  std::shared_ptr<const TextAssets> text;  // null if the model brings no tokenizer: token ids only

  const ModelConfig& config() const { return checkpoint->config(); }
  WeightStore& weights() const {
    return parallel ? static_cast<WeightStore&>(*parallel) : *backend;
  }
};

// "…/SmolLM2.gguf" → "SmolLM2"; "…/SmolLM2/" → "SmolLM2".
std::string model_name_of(const std::string& path);

// Reads and loads it all into the backend. progress is called while weights are read.
Result<std::unique_ptr<BaseModel>> load_base_model(const std::string& path,
                                                   std::unique_ptr<Backend> backend,
                                                   const Progress& progress);
// The same, shared by the ranks that `make` makes for it.
using MakeRanks =
    std::function<Result<std::unique_ptr<ParallelBackend>>(const ModelConfig& config)>;
Result<std::unique_ptr<BaseModel>> load_base_model(const std::string& path, const MakeRanks& make,
                                                   const Progress& progress);
// The same into the processors' memory. With several ranks they are shared by a backend each.
Result<std::unique_ptr<BaseModel>> load_base_model(const std::string& path,
                                                   const CpuBackendOptions& backend,
                                                   const Progress& progress,
                                                   const ParallelOptions& parallel = {});

}  // namespace deltad
