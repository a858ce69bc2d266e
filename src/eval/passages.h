// Passages of tokens that a model is scored on, and the scores: the log-likelihood of each token
// given those before it, and how its distribution differs from a reference's. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "delta/variant.h"
#include "engine/base_model.h"
#include "text/questions.h"
#include "eval/statistics.h"

namespace deltad {

struct Passage {
  std::vector<int32_t> ids;
  int64_t first = 1;  // the first token that is scored; ≥ 1
};

// A text cut into pieces of at most `context` tokens that do not overlap. Each begins with what the
// tokenizer puts before a text (begin token), and is scored after that, or from its second token
// on.
Result<std::vector<Passage>> text_passages(const TextAssets& text, const std::string& content,
                                           int64_t context);
// Prompt, expected answer and end token; the answer and the end are scored.
Result<std::vector<Passage>> question_passages(const TextAssets& text,
                                               const std::vector<Question>& questions);

struct ScoredModel {
  const BaseModel* base = nullptr;
  VariantRef variant;  // null: the base

  int64_t vocab() const { return variant ? variant->vocab : base->config().vocab; }
};

struct PassageScores {
  PassageMean nll;     // −log p of the tokens, in nats
  PassageMean kl;      // KL(reference ‖ model) of the distributions, in nats
  int64_t agreed = 0;  // tokens where both have the same most likely one
};

// reference: null for none; else of the same vocabulary. kInvalidArgument if a passage is too long.
Result<PassageScores> score_passages(const ScoredModel& model, const ScoredModel* reference,
                                     const std::vector<Passage>& passages,
                                     const Progress& progress);

}  // namespace deltad
