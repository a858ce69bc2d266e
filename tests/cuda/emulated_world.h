// Models on emulated GPUs: what the tests of the CUDA backend share.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "delta/loader.h"
#include "engine/base_model.h"
#include "engine/direct_runner.h"
#include "tests/support/cuda_on_cpu/runtime/emulated_gpu.h"

namespace deltad::testing {

// Begins with a new GPU, and ends with nothing found and nothing left.
class EmulatedGpuTest : public ::testing::Test {
 protected:
  void SetUp() override { emulated_gpu::reset(); }
  void TearDown() override {
    EXPECT_EQ(emulated_gpu::report(), "");
    EXPECT_EQ(emulated_gpu::leaks(), "");
    EXPECT_EQ(emulated_gpu::allocated_bytes(), 0u);
    EXPECT_EQ(emulated_gpu::pinned_bytes(), 0u);
  }
};

// A call of one GPU, by its name: how often a GPU is asked differs from run to run.
struct NamedCall {
  std::string name;
  size_t number;     // among those of the name
  std::string site;  // in words

  std::string text() const { return name + " " + site; }
};
// Those that `device` has had, from the call with number `first` of all on.
inline std::vector<NamedCall> named_calls(int device, size_t first = 0) {
  std::vector<NamedCall> named;
  std::map<std::string, size_t> counts;
  const auto all = emulated_gpu::calls();
  for (size_t k = 0; k < all.size(); ++k) {
    if (all[k].device != device) continue;
    const size_t number = counts[all[k].name]++;
    if (k >= first)
      named.push_back({all[k].name, number, emulated_gpu::describe_site(all[k].site)});
  }
  return named;
}

inline std::string golden(const std::string& path) {
  const char* folder =
      std::getenv("DELTAD_GOLDEN_FOLDER");  // a machine with a card may have no build
  return (folder != nullptr ? std::string(folder) : DELTAD_GOLDEN) + "/" + path;
}

inline Result<std::unique_ptr<BaseModel>> load_on_cuda(const std::string& name) {
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, make_cuda_backend({0, 2}));
  return load_base_model(golden("models/" + name), std::move(backend), nullptr);
}

constexpr Duration kLong = std::chrono::seconds(600);

// Ranks on so many GPUs.
inline MakeRanks make_ranks(int ranks, Duration patience = kLong,
                            CommunicatorChoice choice = CommunicatorChoice::kAuto) {
  return [=](const ModelConfig& config) -> Result<std::unique_ptr<ParallelBackend>> {
    ASSIGN_OR_RETURN(CudaRanks made, make_cuda_ranks(ranks, patience, choice));
    return ParallelBackend::make(config, std::move(made.backends), std::move(made.communicators));
  };
}

// A model on one GPU or on several.
inline std::unique_ptr<BaseModel> on_gpus(const std::string& path, int ranks,
                                          Duration patience = kLong) {
  Result<std::unique_ptr<BaseModel>> base = unimplemented("");
  if (ranks > 1) {
    base = load_base_model(path, make_ranks(ranks, patience), nullptr);
  } else {
    base = load_base_model(path, std::move(*make_cuda_backend({0, 1})), nullptr);
  }
  EXPECT_TRUE(base.ok()) << base.status().message();
  return base.ok() ? std::move(*base) : nullptr;
}

// path: in tests/golden; "": the base.
inline Result<VariantRef> load_golden_variant(const BaseModel& base, const std::string& path) {
  if (path.empty()) return VariantRef();
  VariantLoadOptions options;
  options.base_digest = base.digest;
  options.architecture = base.config().architecture;
  options.threads = 1;
  return load_variant(path, golden(path), base.table, *base.backend, options);
}

inline const char* const kOneLevel = "variants/llama/llama-matrix-1.delta.safetensors";
inline const char* const kTwoLevels = "variants/llama/llama-row-2.delta.safetensors";
inline const char* const kDense = "variants/llama_vocab/llama_vocab-row-1.delta.safetensors";
inline const char* const kLowRank = "lora/plain";
inline const char* const kLowRankSome = "lora/regex";  // q, v and down of layers 0 and 2

}  // namespace deltad::testing
