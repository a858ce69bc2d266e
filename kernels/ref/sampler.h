// The oracle of sampling, fp64: which tokens may come from a row of logits, and how likely each is.
#pragma once

#include <cstdint>
#include <vector>

namespace deltad::ref {

// A token's bias (−∞ bars it) and how often it occurred in the output; −1: no penalties.
struct LogitChange {
  int32_t token;
  double bias;
  int32_t count;
};

struct Sampling {
  double temperature = 1;  // 0: greedy
  double top_p = 1, min_p = 0;
  int32_t top_k = 0;  // 0: all
  double repetition_penalty = 1, frequency_penalty = 0, presence_penalty = 0;
};

// Each token's probability; 0 if it may not come.
std::vector<double> token_probabilities(std::vector<double> logits,
                                        const std::vector<LogitChange>& changes,
                                        const Sampling& sampling);

std::vector<double> log_softmax(const std::vector<double>& logits);

}  // namespace deltad::ref
