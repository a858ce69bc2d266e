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
  // The logits of a generated row of each of these, the first of its sequence; no path: the base.
  const auto step = [&](const std::vector<const char*>& paths) {
    std::vector<VariantRef> variants;
    std::vector<const VariantWeights*> bound;
    std::vector<int32_t> blocks(paths.size());
    Batch batch;
    for (int32_t row = 0; row < static_cast<int32_t>(paths.size()); ++row) {
      auto variant = load_golden_variant(**base, paths[static_cast<size_t>(row)]);
      EXPECT_TRUE(variant.ok()) << variant.status().message();
      variants.push_back(*variant);
      if (variants.back()) bound.push_back(variants.back()->weights.get());
      blocks[static_cast<size_t>(row)] = row;
      batch.ids.push_back(7);
      batch.groups.push_back(
          {row, row + 1, variants.back() ? static_cast<int32_t>(bound.size()) - 1 : kBaseSlot});
      batch.spans.push_back({row, row + 1, 0, &blocks[static_cast<size_t>(row)], true});
      batch.logit_rows.push_back(row);
    }
    const auto logits = (*transformer)->forward(batch, {cache->data(), rows, 16, block}, bound);
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    std::vector<std::vector<float>> out;
    if (!logits.ok()) return std::vector<std::vector<float>>(paths.size());
    for (size_t r = 0; r < logits->vocab.size(); ++r) {
      const float* row = logits->values.row<float>(static_cast<int64_t>(r));
      out.emplace_back(row, row + logits->vocab[r]);
    }
    return out;
  };
  const std::vector<float> signs = step({kOneLevel})[0];
  // All have the same adapter, which is not the base; one of them where the signs were.
  std::vector<const char*> all(static_cast<size_t>(rows), kLowRank);
  all[0] = "";
  const auto full = step(all);
  for (size_t r = 2; r < full.size(); ++r) EXPECT_EQ(full[r], full[1]) << "row " << r;
  EXPECT_NE(full[0], full[1]);
  // No slot is empty: the signs come where an adapter was.
  EXPECT_EQ(step({kOneLevel})[0], signs);
  EXPECT_NE(signs, full[0]);
}

}  // namespace
}  // namespace deltad::testing
