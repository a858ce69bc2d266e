// TokenCounts: how often each token occurs in a sequence, for the penalties. Kept only for requests
// that have one; owned by the sequence.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "engine/request.h"

namespace deltad {

class TokenCounts {
 public:
  static bool needed(const SamplingParams& sampling) {
    return sampling.repetition_penalty != 1.0f || sampling.frequency_penalty != 0.0f ||
           sampling.presence_penalty != 0.0f;
  }
  void add_prompt(int32_t token) { output_.try_emplace(token, 0); }
  void add_output(int32_t token) { ++output_[token]; }
  // Token → times in the output; 0: in the prompt only.
  const std::unordered_map<int32_t, int32_t>& output() const { return output_; }

 private:
  std::unordered_map<int32_t, int32_t> output_;
};

}  // namespace deltad
