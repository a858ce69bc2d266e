// Models on several ranks against the same models on one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cpu_features.h"
#include "parallel/parallel_weights.h"
#include "tests/support/random_model.h"
#include "tests/unit/parallel/close_rows.h"
#include "tests/unit/parallel/stepper.h"

namespace deltad {
namespace {

using testing::expect_close;
using testing::load_on_ranks;
using testing::load_variant_of;
using testing::Rows;
using testing::run_mixed;
using testing::tolerance;

const std::string kGolden = DELTAD_GOLDEN;

class ParallelModel : public ::testing::TestWithParam<const char*> {
 protected:
  // paths: variants; "" is the base. Each alone would do; together they are a mixed batch.
  void check(const std::string& model, const std::vector<int>& ranks,
             const std::vector<std::string>& paths, bool signs) {
    Rows expected;
    int64_t layers = 0;
    bool bf16 = false;
    // From AVX-512 on signs meet activations of 8 bits (kernels/cpu/linear.h).
    const Result<Isa> isa = choose_isa(GetParam());
    ASSERT_TRUE(isa.ok()) << isa.status().message();
    const bool eight_bits = signs && *isa >= Isa::kAvx512;
    for (const int n : ranks) {
      SCOPED_TRACE(::testing::Message() << model << " on " << n << " ranks");
      const auto base = load_on_ranks(model, n, GetParam());
      ASSERT_NE(base, nullptr);
      std::vector<VariantRef> variants;
      for (const std::string& path : paths)
        variants.push_back(path.empty() ? nullptr : load_variant_of(*base, path));
      const Rows rows = run_mixed(*base, variants, 8);
      if (n == 1) {
        expected = rows;
        layers = base->config().layers;
        bf16 = base->backend->ops().activation_type() == DType::kBF16;
        continue;
      }
      const int compared = expect_close(rows, expected, tolerance(layers, bf16, eight_bits));
      if (!eight_bits) {
        EXPECT_GT(compared, 0);
      }
      EXPECT_EQ(rows, run_mixed(*base, variants, 8)) << "twice the same bits";
    }
  }
  // As above, of a model that is made up, with a variant of every kind.
  void check_random(const ModelConfig& config) {
    const testing::TempFolder folder, lora;
    testing::write_random_model(folder, config, 1);
    const std::vector<testing::RandomDelta> deltas = {{1, false, false, 0},
                                                      {1, true, false, 0},
                                                      {2, true, false, 0},
                                                      {2, false, true, 0},
                                                      {1, true, true, 21}};
    std::vector<std::string> signs = {""};
    for (const testing::RandomDelta& delta : deltas) {
      signs.push_back(folder.file(std::to_string(signs.size()) + ".delta.safetensors"));
      testing::write_random_delta(signs.back(), config, delta,
                                  static_cast<uint32_t>(10 + signs.size()));
    }
    testing::write_random_lora(lora, config, 4, 3);
    const std::vector<int> ranks = {1, 2, 4, 8};
    check(folder.path(), ranks, {""}, false);
    check(folder.path(), ranks, {"", lora.path()}, false);
    check(folder.path(), ranks, signs, true);
    signs.push_back(lora.path());
    check(folder.path(), {1, 3}, signs, true);
  }
};

TEST_P(ParallelModel, EightKvHeads) { check_random(testing::even_model()); }
TEST_P(ParallelModel, SizesThatDivideByNothing) { check_random(testing::uneven_model()); }

TEST_P(ParallelModel, GoldenModelsAndTheirVariants) {
  const std::string variants = kGolden + "/variants/", lora = kGolden + "/lora/";
  check(kGolden + "/models/llama", {1, 2, 4},
        {"", variants + "llama/llama-matrix-1.delta.safetensors",
         variants + "llama/llama-row-1.delta.safetensors",
         variants + "llama/llama-matrix-2.delta.safetensors",
         variants + "llama/llama-row-2.delta.safetensors",
         variants + "llama_vocab/llama_vocab-row-1.delta.safetensors",
         variants + "llama_vocab/llama_vocab-matrix-2.delta.safetensors", lora + "plain"},
        true);
  check(kGolden + "/models/llama", {1, 2, 4},
        {"", lora + "plain", lora + "scales", lora + "saved", lora + "regex", lora + "plain.gguf"},
        false);
  check(kGolden + "/models/awkward", {1, 2, 3}, {"", lora + "layers", lora + "tables"}, false);
  check(kGolden + "/models/awkward", {1, 2, 3},
        {"", variants + "awkward/awkward-row-2.delta.safetensors",
         variants + "awkward/awkward-matrix-1.delta.safetensors"},
        true);
}

// A row's bits depend on nothing but its sequence, on several ranks too.
TEST_P(ParallelModel, MixedBatchesChangeNothing) {
  const auto base = load_on_ranks(kGolden + "/models/llama", 4, GetParam());
  ASSERT_NE(base, nullptr);
  std::vector<VariantRef> variants = {nullptr};
  for (const char* name : {"variants/llama/llama-row-1.delta.safetensors", "lora/saved",
                           "variants/llama_vocab/llama_vocab-row-1.delta.safetensors"})
    variants.push_back(load_variant_of(*base, kGolden + "/" + name));
  const Rows mixed = run_mixed(*base, variants, 1);
  // In its first step the first sequence is the same alone.
  const Rows alone = run_mixed(*base, {nullptr}, 1);
  ASSERT_LT(alone.size(), mixed.size());
  for (size_t r = 0; r < alone.size(); ++r) {
    EXPECT_EQ(mixed[r], alone[r]) << "row " << r;
  }
}

// Bytes add up over the ranks: what is dealt out once, what is on all of them as often.
TEST_P(ParallelModel, MemoryIsTheSumOverTheRanks) {
  const testing::TempFolder folder;
  const ModelConfig config = testing::even_model();
  testing::write_random_model(folder, config, 1);
  const std::string path = folder.file("a.delta.safetensors");
  testing::write_random_delta(path, config, {2, true, true, 5}, 2);
  const auto alone = load_on_ranks(folder.path(), 1, GetParam());
  const auto ranks = load_on_ranks(folder.path(), 4, GetParam());
  const VariantRef one = load_variant_of(*alone, path), four = load_variant_of(*ranks, path);
  EXPECT_EQ(four->vocab, config.vocab + 5);
  size_t base_bytes = 0, variant_bytes = 0;
  const auto* parts = static_cast<const ParallelWeights*>(four->weights.get());
  for (int r = 0; r < 4; ++r) {
    base_bytes += ranks->parallel->backend(r).weight_bytes();
    variant_bytes += parts->rank(r).bytes();
  }
  EXPECT_EQ(ranks->weights().weight_bytes(), base_bytes);
  EXPECT_EQ(four->bytes, variant_bytes);
  VariantLoadOptions options;
  const auto measured = measure_variant(path, ranks->table, ranks->weights(), options);
  ASSERT_TRUE(measured.ok());
  EXPECT_EQ(measured->bytes, static_cast<int64_t>(variant_bytes));
  // Beside norms, α of o and down, and padding nothing is there twice.
  EXPECT_GE(base_bytes, alone->weights().weight_bytes());
  EXPECT_LE(base_bytes, alone->weights().weight_bytes() + 4 * 4096 + 4 * 5 * 64 * 4);
  EXPECT_LE(four->bytes, one->bytes + 4 * 4096 + 4 * 64 * 4 * (5 + 2 * 2 * 2));
}

INSTANTIATE_TEST_SUITE_P(Isa, ParallelModel, ::testing::Values("scalar", ""), [](const auto& info) {
  return std::string(*info.param == 0 ? "best" : info.param);
});

}  // namespace
}  // namespace deltad
