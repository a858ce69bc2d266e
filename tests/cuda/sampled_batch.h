// Rows of a batch that want every kind of sampling, and whether a device gave what the host's
// sampler gives of the same logits.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>
#include <vector>

#include "engine/sampler.h"
#include "model/transformer.h"

namespace deltad::testing {

constexpr int32_t kSampledRows = 11;  // of each of two sequences
constexpr int64_t kWidestSampled = 4096;

// Row r's input; what it points to lives on in these.
struct SampleInputs {
  SampleInput of(int32_t r) {
    SamplingParams& p = params.emplace_back();
    p.seed = static_cast<uint64_t>(1000 + r);
    SampleInput input;
    input.params = &p;
    input.position = static_cast<uint64_t>(r);
    switch (r % kSampledRows) {
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
        for (int32_t t = 0; t < kWidestSampled; ++t) barred.back().push_back(t);
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

inline bool scores(int32_t r) { return r % kSampledRows == kSampledRows - 1; }
inline int32_t given(int32_t r) { return r < kSampledRows ? 17 : 100000; }

inline void expect_same(const Scored& got, const Scored& expected) {
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

// Two sequences' prompts, the base's and of a variant in slot 0, the logits of all rows wanted.
struct SampledBatch {
  // blocks: of each sequence, one.
  SampledBatch(const int32_t* first, const int32_t* second, int32_t tokens) {
    batch.groups = {{0, kSampledRows, -1}, {kSampledRows, 2 * kSampledRows, 0}};
    batch.spans = {{0, kSampledRows, 0, first}, {kSampledRows, 2 * kSampledRows, 0, second}};
    for (int32_t r = 0; r < 2 * kSampledRows; ++r) {
      batch.ids.push_back(31 * r % tokens);
      batch.logit_rows.push_back(r);
      input.push_back(inputs.of(r));
      wanted.push_back(scores(r) ? score_request(given(r), 2) : sample_request(input.back()));
    }
  }
  // outcomes: of the device. Logits are those that the same step gave.
  void expect_those_of_the_host(const Logits& logits, const std::vector<SampleOutcome>& outcomes) {
    ASSERT_EQ(outcomes.size(), wanted.size());
    for (size_t r = 0; r < wanted.size(); ++r) {
      SCOPED_TRACE(r);
      const int64_t vocab = logits.vocab[r];
      const float* values = logits.values.row<float>(static_cast<int64_t>(r));
      std::vector<float> row(values, values + vocab);
      const Sampled got = sampled(outcomes[r]);
      if (scores(static_cast<int32_t>(r))) {
        const auto expected = score(row.data(), vocab, given(static_cast<int32_t>(r)), 2);
        ASSERT_TRUE(expected.ok());
        expect_same(got.scored, *expected);
        continue;
      }
      input[r].logits = row.data();
      input[r].vocab = vocab;
      const Sampled expected = sample(input[r]);
      EXPECT_EQ(got.status.message(), expected.status.message());
      if (!expected.status.ok()) continue;
      EXPECT_EQ(got.token, expected.token);
      if (input[r].top >= 0) expect_same(got.scored, expected.scored);
    }
  }

  Batch batch;
  SampleInputs inputs;
  std::vector<SampleInput> input;
  std::vector<SampleRequest> wanted;
};

}  // namespace deltad::testing
