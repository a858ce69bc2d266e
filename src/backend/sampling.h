// What is wanted of rows of logits by a device that samples by itself, and what comes of them.
// Plain data; the rules are the sampler's (engine/sampler.h).
#pragma once

#include <cstdint>
#include <vector>

namespace deltad {

// Of one token, which comes once a row. A bias of −∞ bars it.
struct SampleChange {
  int32_t token;  // one that the row's head does not have is left out
  float bias = 0;
  int32_t count = -1;  // times in the output; 0: in the prompt only; −1: no penalties
};

struct SampleRequest {
  float temperature = 1;
  float top_p = 1, min_p = 0;
  int32_t top_k = 0;
  float repetition_penalty = 1, frequency_penalty = 0, presence_penalty = 0;
  uint64_t seed = 0, position = 0;
  int32_t choice = 0;
  std::vector<SampleChange> changes;
  int32_t top = -1;    // log-probabilities: −1 none, else how many of the best ones
  int32_t given = -1;  // the token whose log-probability is wanted; then none is chosen
};

struct SampleOutcome {
  enum class State { kOk, kNotFinite, kAllBarred };
  State state = State::kOk;
  int32_t token = -1;
  float logprob = 0;
  struct Top {
    int32_t token;
    float logprob;
  };
  std::vector<Top> top;  // best first
};

}  // namespace deltad
