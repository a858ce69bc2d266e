// Rows of logits sampled on the GPU: the tokens that the host's sampler chooses from the same
// logits. Runs on a card, too.
#include <cmath>
#include <deque>
#include <limits>
#include <vector>

#include "engine/sampler.h"
#include "tests/cuda/emulated_world.h"

namespace deltad::testing {
namespace {

constexpr int32_t kRows = 11;  // of each of two sequences
constexpr int64_t kWidest = 4096;

// Row r's input; what it points to lives on in these.
struct Inputs {
  SampleInput of(int32_t r) {
    SamplingParams& p = params.emplace_back();
    p.seed = static_cast<uint64_t>(1000 + r);
    SampleInput input;
    input.params = &p;
    input.position = static_cast<uint64_t>(r);
    switch (r % kRows) {
      case 0:
        p.temperature = 0;
        break;
      case 1:
        input.choice = 2;
        break;
      case 2:
        p.temperature = 0.7f;
        p.top_k = 5;
        break;
      case 3:
        p.temperature = 1.2f;
        p.top_p = 0.9f;
        break;
      case 4:
        p.min_p = 0.1f;
        break;
      case 5:
        p.temperature = 0;
        p.repetition_penalty = 1.3f;
        p.frequency_penalty = 0.5f;
        p.presence_penalty = 0.25f;
        counts.emplace_back();
        for (int32_t t = 0; t < 300; ++t) counts.back().add_prompt(t);
        for (int32_t t = 100; t < 400; t += 3) counts.back().add_output(t);
        input.counts = &counts.back();
        break;
      case 6:  // a token that one of the heads does not have is nobody's
        p.logit_bias = {{7, 30.0f}, {9, 29.0f}, {100000, 50.0f}};
        p.temperature = 0;
        barred.push_back({7});
        input.barred = barred.back();
        break;
      case 7:
        input.top = 3;
        break;
      case 8:
        p.top_k = 20;
        p.top_p = 0.8f;
        input.top = 0;
        break;
      case 9: {  // all barred
        barred.emplace_back();
        for (int32_t t = 0; t < kWidest; ++t) barred.back().push_back(t);
        input.barred = barred.back();
        break;
      }
      default:  // a score
        break;
    }
    return input;
  }
  std::deque<SamplingParams> params;
  std::deque<TokenCounts> counts;
  std::deque<std::vector<int32_t>> barred;
};

bool scores(int32_t r) { return r % kRows == kRows - 1; }
int32_t given(int32_t r) { return r < kRows ? 17 : 100000; }

void expect_same(const Scored& got, const Scored& expected) {
  if (std::isfinite(expected.logprob)) {
    EXPECT_NEAR(got.logprob, expected.logprob, 1e-5);
  } else {
    EXPECT_EQ(got.logprob, expected.logprob);
  }
  ASSERT_EQ(got.top.size(), expected.top.size());
  for (size_t i = 0; i < got.top.size(); ++i) {
    EXPECT_EQ(got.top[i].id, expected.top[i].id);
    EXPECT_NEAR(got.top[i].logprob, expected.top[i].logprob, 1e-5);
  }
}

using CudaSampling = EmulatedGpuTest;

TEST_F(CudaSampling, ChoosesWhatTheHostDoes) {
  auto base = load_on_cuda("llama");
  ASSERT_TRUE(base.ok()) << base.status().message();
  auto variant = load_golden_variant(**base, kDense);
  ASSERT_TRUE(variant.ok()) << variant.status().message();
  Backend& backend = *(*base)->backend;
  auto transformer =
      Transformer::make((*base)->config(), (*base)->table, backend, 2 * kRows, kRows);
  ASSERT_TRUE(transformer.ok());
  const int64_t block = backend.ops().kv_block_bytes((*transformer)->attention_shape(), 16);
  auto cache = backend.allocate(static_cast<size_t>((*base)->config().layers * 2 * block));
  ASSERT_TRUE(cache.ok());
  const KvView kv{cache->data(), 2, 16, block};
  const int32_t blocks[] = {0, 1};
  Batch batch;
  batch.groups = {{0, kRows, -1}, {kRows, 2 * kRows, 0}};
  batch.spans = {{0, kRows, 0, &blocks[0]}, {kRows, 2 * kRows, 0, &blocks[1]}};
  Inputs inputs;
  std::vector<SampleInput> input;
  std::vector<SampleRequest> wanted;
  for (int32_t r = 0; r < 2 * kRows; ++r) {
    batch.ids.push_back(31 * r % 400);
    batch.logit_rows.push_back(r);
    input.push_back(inputs.of(r));
    wanted.push_back(scores(r) ? score_request(given(r), 2) : sample_request(input.back()));
  }
  const std::vector<const VariantWeights*> slots = {(*variant)->weights.get()};
  const auto logits = (*transformer)->forward(batch, kv, slots);
  ASSERT_TRUE(logits.ok()) << logits.status().message();
  ASSERT_NE(logits->vocab.front(), logits->vocab.back());
  std::vector<std::vector<float>> rows;
  for (size_t r = 0; r < wanted.size(); ++r) {
    const float* row = logits->values.row<float>(static_cast<int64_t>(r));
    rows.emplace_back(row, row + logits->vocab[r]);
  }
  const auto outcomes = (*transformer)->forward_sampled(batch, kv, slots, wanted, nullptr);
  ASSERT_TRUE(outcomes.ok()) << outcomes.status().message();
  ASSERT_EQ(outcomes->size(), wanted.size());
  for (size_t r = 0; r < wanted.size(); ++r) {
    SCOPED_TRACE(r);
    const auto vocab = static_cast<int64_t>(rows[r].size());
    const Sampled got = sampled((*outcomes)[r]);
    if (scores(static_cast<int32_t>(r))) {
      const auto expected = score(rows[r].data(), vocab, given(static_cast<int32_t>(r)), 2);
      ASSERT_TRUE(expected.ok());
      expect_same(got.scored, *expected);
      continue;
    }
    input[r].logits = rows[r].data();
    input[r].vocab = vocab;
    const Sampled expected = sample(input[r]);
    EXPECT_EQ(got.status.message(), expected.status.message());
    if (!expected.status.ok()) continue;
    EXPECT_EQ(got.token, expected.token);
    if (input[r].top >= 0) expect_same(got.scored, expected.scored);
  }
}

}  // namespace
}  // namespace deltad::testing
