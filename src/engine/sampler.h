// Sampler: from a row of logits to a token. The result depends on the row, the request's
// parameters, its tokens so far and (seed, choice, position) alone. Pure functions; the engine runs
// them on the kernel threads, a row each.
//
// Order: logit_bias, stop tokens barred (min_tokens), repetition, frequency and presence penalties,
// temperature, top_k, top_p, min_p. Log-probabilities are those of the unchanged logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/sampling.h"
#include "base/status.h"
#include "engine/request.h"
#include "engine/token_counts.h"

namespace deltad {

struct SampleInput {
  float* logits = nullptr;  // [vocab]; changed in place by bias and penalties
  int64_t vocab = 0;
  const SamplingParams* params = nullptr;
  const TokenCounts* counts = nullptr;  // null: no penalties
  std::span<const int32_t> barred;      // tokens that may not come
  int32_t choice = 0;
  uint64_t position = 0;  // of the token to come
  int32_t top = -1;       // logprobs: −1 none, else how many top entries
};

struct Scored {
  float logprob = 0;
  std::vector<TokenLogprob> top;  // best first
};

struct Sampled {
  Status status;  // kInternal: the logits are no numbers, or no token is left
  int32_t token = -1;
  Scored scored;
};

// Below this a temperature means greedy.
constexpr float kGreedyTemperature = 1e-5f;

Sampled sample(const SampleInput& input);

// The same for a device that samples by itself: what it is to do with a row of such an input
// (without logits), and what came of it.
SampleRequest sample_request(const SampleInput& input);
Sampled sampled(const SampleOutcome& outcome);

// The log-probability of a given token, and the `top` best ones.
Result<Scored> score(const float* logits, int64_t vocab, int32_t token, int32_t top);
SampleRequest score_request(int32_t token, int32_t top);

}  // namespace deltad
