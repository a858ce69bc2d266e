// Scores of the last layer's output: how far the distributions of the base and of the compressed
// variant are from the fine-tune's, on the same tokens. The head is read in blocks of rows, so that
// neither it nor the logits are ever in memory as a whole. One thread calls.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "delta/tune.h"
#include "model/checkpoint.h"

namespace deltad {

// From the fine-tune, over tokens.
struct HeadScore {
  double kl = 0;    // mean KL(fine-tune ‖ model), nats; NaN if logits of either are not finite
  double top1 = 0;  // share of tokens with the same most likely next one
};

struct HeadScores {
  HeadScore base, variant;
  bool finite() const { return std::isfinite(base.kl) && std::isfinite(variant.kl); }
  // 1: the variant answers as the fine-tune; 0: as the base, or nothing can be said.
  double closed() const {
    if (!finite()) return 0;
    return base.kl > 0 ? 1 - variant.kl / base.kl : 1;
  }
};

// What entered the head, fp32 [tokens, H] each. Tokens that only the fine-tune has do not count.
Result<HeadScores> score_heads(const Checkpoint& base, const Tune& tune,
                               const std::vector<float>& of_base, const std::vector<float>& of_tune,
                               const std::vector<float>& of_variant, int threads);

}  // namespace deltad
