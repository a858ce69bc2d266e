// Steps on the emulated GPU: which of them are graphs, and the most variants that one may have.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/cuda_ops.h"
#include "tests/cuda/gpu_life.h"

namespace deltad::testing {
namespace {

using CudaSteps = EmulatedGpuTest;

int64_t launches() { return static_cast<int64_t>(emulated_gpu::launches().size()); }

TEST_F(CudaSteps, OfGeneratedRowsThatAreAlikeAreGraphs) {
  GpuLife life;
  ASSERT_TRUE(life.begin().ok());
  ASSERT_TRUE(life.enter(0, kOneLevel).ok());
  ASSERT_TRUE(life.prompt(0, 2, true).ok());
  const auto& ops = static_cast<const CudaOps&>(life.backend()->ops());
  const int64_t before = launches();
  ASSERT_TRUE(life.generate(2, 1).ok());
  EXPECT_EQ(ops.replayed_steps(), 0);
  const int64_t of_a_step = launches() - before;
  // Scratch has found its size, so that the next two are the same list: launched, then captured.
  ASSERT_TRUE(life.generate(3, 2).ok());
  EXPECT_EQ(ops.replayed_steps(), 1);
  EXPECT_EQ(launches(), before + 3 * of_a_step);
  ASSERT_TRUE(life.generate(5, 3).ok());
  EXPECT_EQ(ops.replayed_steps(), 4);
  EXPECT_EQ(launches(), before + 3 * of_a_step);
  // Another variant of its kind in its place: the same graph (engine_test.cc looks at the bits).
  life.leave(0);
  ASSERT_TRUE(life.enter(0, "variants/llama/llama-row-1.delta.safetensors").ok());
  ASSERT_TRUE(life.generate(8, 1).ok());
  EXPECT_EQ(ops.replayed_steps(), 5);
}

TEST_F(CudaSteps, HaveAVariantForEachSlotBesideTheBase) {
  auto base = load_on_cuda("llama");
  ASSERT_TRUE(base.ok()) << base.status().message();
  const int32_t slots = (*base)->backend->ops().max_slots(), rows = slots + 1;
  auto transformer =
      Transformer::make((*base)->config(), (*base)->table, *(*base)->backend, rows, 16);
  ASSERT_TRUE(transformer.ok());
  const int64_t block =
      (*base)->backend->ops().kv_block_bytes((*transformer)->attention_shape(), 16);
  auto cache =
      (*base)->backend->allocate(static_cast<size_t>((*base)->config().layers * rows * block));
  ASSERT_TRUE(cache.ok());
  std::vector<VariantRef> variants;
  std::vector<const VariantWeights*> bound;
  std::vector<int32_t> blocks;
  Batch batch;
  for (int32_t row = 0; row < rows; ++row) {
    if (row > 0) {
      auto variant = load_golden_variant(**base, kLowRank);
      ASSERT_TRUE(variant.ok()) << variant.status().message();
      variants.push_back(*variant);
      bound.push_back(variants.back()->weights.get());
    }
    blocks.push_back(row);
    batch.ids.push_back(7);
    batch.groups.push_back({row, row + 1, row - 1});
    batch.logit_rows.push_back(row);
  }
  for (int32_t row = 0; row < rows; ++row)
    batch.spans.push_back({row, row + 1, 0, &blocks[static_cast<size_t>(row)], true});
  const auto logits = (*transformer)->forward(batch, {cache->data(), rows, 16, block}, bound);
  ASSERT_TRUE(logits.ok()) << logits.status().message();
  // All have the same adapter, which is not the base.
  const int64_t vocab = logits->vocab[0];
  const auto row = [&](int32_t r) { return logits->values.row<float>(r); };
  for (int32_t r = 2; r < rows; ++r) EXPECT_TRUE(std::equal(row(1), row(1) + vocab, row(r))) << r;
  EXPECT_FALSE(std::equal(row(0), row(0) + vocab, row(1)));
}

}  // namespace
}  // namespace deltad::testing
