// Passages of tokens that a model is scored on, and the scores: the log-likelihood of each token
// given those before it, and how its distribution differs from a reference's. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "delta/variant.h"
#include "engine/base_model.h"
#include "eval/statistics.h"
#include "text/questions.h"

namespace deltad {

struct Passage {
  std::vector<int32_t> ids;
  int64_t first = 1;  // the first token that is scored; ≥ 1
};

// A text's tokens cut into pieces of at most `context` that do not overlap. Each begins with
// `begin`, and is scored after that, or from its second token on.
Result<std::vector<Passage>> cut_passages(const std::vector<int32_t>& begin,
                                          const std::vector<int32_t>& ids, int64_t context);
// Of a text; `begin` is what the tokenizer puts before one (begin token).
Result<std::vector<Passage>> text_passages(const TextAssets& text, const std::string& content,
                                           int64_t context);
// What the template puts after the answer that ends `passage`, by the tokens of the whole chat;
// none if these do not begin with it.
std::optional<int32_t> token_after(const std::vector<int32_t>& passage,
                                   const std::vector<int32_t>& chat);
// Prompt, expected answer and end token; the answer and the end are scored. The end is what the
// template puts after an answer, else the model's first end token.
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
