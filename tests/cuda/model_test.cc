// Whole models on the CUDA backend, on an emulated GPU, beside the CPU backend: logits of tiny
// models and of every kind of variant, and greedy tokens where the margin allows.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/emulated_world.h"
#include "tests/support/golden_reference.h"

namespace deltad {
namespace {

using testing::golden;
using testing::kDense;
using testing::kLowRank;
using testing::kOneLevel;
using testing::kTwoLevels;

// What either backend may be off by from fp32 activations on these models (tests/golden), half of
// the bound of golden_model_test: the two may be off in opposite directions.
constexpr float kTolerance = 0.25f;

std::unique_ptr<BaseModel> on_cpu(const std::string& name) {
  auto model = load_base_model(golden("models/" + name), CpuBackendOptions{2, false, ""}, nullptr);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? std::move(*model) : nullptr;
}

std::unique_ptr<BaseModel> on_cuda(const std::string& name) {
  auto model = testing::load_on_cuda(name);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? std::move(*model) : nullptr;
}

// "": the base.
std::vector<VariantRef> load_all(const BaseModel& base, const std::vector<std::string>& paths) {
  std::vector<VariantRef> out;
  for (const std::string& path : paths) {
    const auto variant = testing::load_golden_variant(base, path);
    EXPECT_TRUE(variant.ok()) << path << ": " << variant.status().message();
    out.push_back(variant.ok() ? *variant : nullptr);
  }
  return out;
}

std::unique_ptr<DirectRunner> runner_of(const BaseModel& base, std::vector<VariantRef> variants) {
  auto made =
      DirectRunner::make(base.config(), base.table, *base.backend, std::move(variants), 48, 24);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(*made) : nullptr;
}

std::vector<int32_t> prompt_of(int sequence, int length) {
  std::vector<int32_t> ids;
  for (int i = 0; i < length; ++i) ids.push_back((17 * sequence + 31 * i) % 500 + 3);
  return ids;
}

// The next token of a row, after comparing it with the same row of the other backend.
int32_t compare_row(const Logits& cpu, const Logits& cuda, int64_t row) {
  const int64_t vocab = cpu.vocab[static_cast<size_t>(row)];
  EXPECT_EQ(cuda.vocab[static_cast<size_t>(row)], vocab);
  const float* expected = cpu.values.row<float>(row);
  const float* values = cuda.values.row<float>(row);
  float worst = 0, best = -INFINITY, second = -INFINITY;
  for (int64_t c = 0; c < vocab; ++c) {
    const float difference = std::fabs(values[c] - expected[c]);
    if (!(difference <= worst)) worst = std::isnan(difference) ? INFINITY : difference;
    second = std::max(second, std::min(best, expected[c]));
    best = std::max(best, expected[c]);
  }
  EXPECT_LE(worst, kTolerance) << "row " << row;
  const int32_t token = greedy_token(cpu, row);
  if (best - second > 2 * worst) {
    EXPECT_EQ(greedy_token(cuda, row), token) << "row " << row;
  }
  return token;
}

class CudaModel : public testing::EmulatedGpuTest {};

// Prompts in chunks, then steps with a token of every sequence.
void compare(const std::string& base, const std::vector<std::string>& variants, int steps) {
  const auto cpu = on_cpu(base), cuda = on_cuda(base);
  ASSERT_TRUE(cpu && cuda);
  const auto one = runner_of(*cpu, load_all(*cpu, variants));
  const auto other = runner_of(*cuda, load_all(*cuda, variants));
  ASSERT_TRUE(one && other);
  std::vector<int32_t> next(variants.size());
  for (size_t s = 0; s < variants.size(); ++s) {
    const int sequence = static_cast<int>(s);
    const std::vector<int32_t> prompt = prompt_of(sequence, 19 + 2 * sequence % 5);
    for (size_t at = 0; at < prompt.size(); at += 11) {
      const auto chunk = std::span(prompt).subspan(at, std::min<size_t>(11, prompt.size() - at));
      const auto expected = one->append(sequence, chunk, true);
      const auto logits = other->append(sequence, chunk, true);
      ASSERT_TRUE(expected.ok() && logits.ok()) << logits.status().message();
      for (int64_t r = 0; r < expected->values.rows(); ++r)
        next[s] = compare_row(*expected, *logits, r);
    }
  }
  for (int step = 0; step < steps; ++step) {
    const auto expected = one->step(next), logits = other->step(next);
    ASSERT_TRUE(expected.ok() && logits.ok()) << logits.status().message();
    for (size_t s = 0; s < variants.size(); ++s)
      next[s] = compare_row(*expected, *logits, static_cast<int64_t>(s));
  }
}

// Against fp32 activations: twice what a run with bf16 activations is off by, as for the CPU.
struct ReferenceCase {
  const char* base;
  const char* variant;  // "": the base
  const char* reference;
  const char* prefix;
  float tolerance;
};
class CudaReference : public testing::EmulatedGpuTest,
                      public ::testing::WithParamInterface<ReferenceCase> {};

TEST_P(CudaReference, Logits) {
  const ReferenceCase& c = GetParam();
  const auto base = on_cuda(c.base);
  ASSERT_TRUE(base);
  const auto reference =
      SafetensorsFile::open(golden(std::string(c.reference) + "/reference.safetensors"));
  ASSERT_TRUE(reference.ok());
  const auto prompt = testing::read_ids(*reference, "input_ids");
  const auto expected = testing::read_tensor<float>(*reference, std::string(c.prefix) + "logits");
  const auto rows = static_cast<int64_t>(prompt.size());
  const auto runner = DirectRunner::make(base->config(), base->table, *base->backend,
                                         load_all(*base, {c.variant}), rows, rows);
  ASSERT_TRUE(runner.ok());
  const auto logits = (*runner)->append(0, prompt, true);
  ASSERT_TRUE(logits.ok()) << logits.status().message();
  const int64_t vocab = static_cast<int64_t>(expected.size()) / rows;
  ASSERT_EQ(logits->vocab[0], vocab);
  EXPECT_LE(testing::largest_difference(logits->values, expected, vocab), c.tolerance);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, CudaReference,
    ::testing::Values(ReferenceCase{"llama", "", "models/llama", "", 0.252f},
                      ReferenceCase{"awkward", "", "models/awkward", "", 0.21f},
                      ReferenceCase{"llama", "variants/llama/llama-matrix-2.delta.safetensors",
                                    "variants/llama", "matrix-2.", 0.228f},
                      ReferenceCase{"llama", kDense, "variants/llama_vocab", "row-1.", 0.228f},
                      ReferenceCase{"awkward", "variants/awkward/awkward-row-2.delta.safetensors",
                                    "variants/awkward", "row-2.", 0.26f},
                      ReferenceCase{"llama", kLowRank, "lora/plain", "", 0.16f},
                      ReferenceCase{"awkward", "lora/tables", "lora/tables", "", 0.16f}));

TEST_F(CudaModel, Base) { compare("llama", {""}, 4); }
TEST_F(CudaModel, SizesThatDivideByNothing) { compare("awkward", {""}, 2); }
TEST_F(CudaModel, OneLevelOfSigns) { compare("llama", {kOneLevel}, 2); }
TEST_F(CudaModel, SignsOnSizesThatDivideByNothing) {
  compare("awkward", {"variants/awkward/awkward-row-2.delta.safetensors"}, 2);
}
TEST_F(CudaModel, LowRankOnSizesThatDivideByNothing) { compare("awkward", {"lora/tables"}, 2); }

TEST_F(CudaModel, AllKindsInOneBatch) {
  compare("llama", {"", kOneLevel, kTwoLevels, kDense, kLowRank, "lora/saved"}, 3);
}

// The same when work runs in any order that streams and events allow.
TEST_F(CudaModel, AnyOrderOfWork) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    emulated_gpu::Options options;
    options.order = emulated_gpu::Order::kRandom;
    options.seed = seed;
    emulated_gpu::reset(options);
    compare("llama", {"", kTwoLevels, kLowRank}, 2);
    EXPECT_EQ(emulated_gpu::report(), "") << "seed " << seed;
  }
}

// A sequence gets, bit for bit, what it gets alone, whatever stands beside it.
TEST_F(CudaModel, NeighboursChangeNothing) {
  const auto base = on_cuda("llama");
  ASSERT_TRUE(base);
  const std::vector<VariantRef> variants = load_all(*base, {"", kTwoLevels, kDense, kLowRank});
  const auto together = runner_of(*base, variants);
  std::vector<std::unique_ptr<DirectRunner>> alone;
  for (size_t s = 0; s < variants.size(); ++s) {
    alone.push_back(runner_of(*base, {variants[s]}));
    const std::vector<int32_t> prompt = prompt_of(static_cast<int>(s), 9);
    ASSERT_TRUE(together->append(static_cast<int>(s), prompt, false).ok());
    ASSERT_TRUE(alone[s]->append(0, std::span(prompt).first(4), false).ok());
    ASSERT_TRUE(alone[s]->append(0, std::span(prompt).subspan(4), false).ok());
  }
  const std::vector<int32_t> next(variants.size(), 7);
  const auto mixed = together->step(next);
  ASSERT_TRUE(mixed.ok());
  std::vector<std::vector<float>> rows;
  for (size_t s = 0; s < variants.size(); ++s) {
    const float* row = mixed->values.row<float>(static_cast<int64_t>(s));
    rows.emplace_back(row, row + mixed->vocab[s]);
  }
  for (size_t s = 0; s < variants.size(); ++s) {
    const auto single = alone[s]->step(std::vector<int32_t>{7});
    ASSERT_TRUE(single.ok());
    const float* row = single->values.row<float>(0);
    EXPECT_EQ(rows[s], std::vector<float>(row, row + single->vocab[0])) << "sequence " << s;
  }
}

}  // namespace
}  // namespace deltad
