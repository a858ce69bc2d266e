// Rows of logits sampled on the GPU: the tokens that the host's sampler chooses from the same
// logits. Runs on a card, too.
#include <vector>

#include "tests/cuda/emulated_world.h"
#include "tests/cuda/sampled_batch.h"

namespace deltad::testing {
namespace {

using CudaSampling = EmulatedGpuTest;

TEST_F(CudaSampling, ChoosesWhatTheHostDoes) {
  auto base = load_on_cuda("llama");
  ASSERT_TRUE(base.ok()) << base.status().message();
  auto variant = load_golden_variant(**base, kDense);
  ASSERT_TRUE(variant.ok()) << variant.status().message();
  Backend& backend = *(*base)->backend;
  auto transformer =
      Transformer::make((*base)->config(), (*base)->table, backend, 2 * kSampledRows, kSampledRows);
  ASSERT_TRUE(transformer.ok());
  const int64_t block = backend.ops().kv_block_bytes((*transformer)->attention_shape(), 16);
  auto cache = backend.allocate(static_cast<size_t>((*base)->config().layers * 2 * block));
  ASSERT_TRUE(cache.ok());
  const KvView kv{cache->data(), 2, 16, block};
  const int32_t blocks[] = {0, 1};
  SampledBatch step(&blocks[0], &blocks[1], 400);
  const std::vector<const VariantWeights*> slots = {(*variant)->weights.get()};
  const auto outcomes =
      (*transformer)->forward_sampled(step.batch, kv, slots, step.wanted, nullptr);
  ASSERT_TRUE(outcomes.ok()) << outcomes.status().message();
  const auto logits = (*transformer)->forward(step.batch, kv, slots);
  ASSERT_TRUE(logits.ok()) << logits.status().message();
  ASSERT_NE(logits->vocab.front(), logits->vocab.back());
  step.expect_those_of_the_host(*logits, *outcomes);
}

}  // namespace
}  // namespace deltad::testing
