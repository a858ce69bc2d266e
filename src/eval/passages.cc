#include "eval/passages.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include "engine/direct_runner.h"
#include "text/user_message.h"

namespace deltad {
namespace {

constexpr int64_t kRows = 64;  // of one step: bounds the logits that are held

// log Σ exp of a row, in fp64.
double log_sum(const float* row, int64_t vocab) {
  const float top = *std::max_element(row, row + vocab);
  double sum = 0;
  for (int64_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(row[i] - top));
  return static_cast<double>(top) + std::log(sum);
}

int64_t top_of(const float* row, int64_t vocab) { return std::max_element(row, row + vocab) - row; }

// KL(p ‖ q) with p of the reference.
double divergence(const float* model, double model_sum, const float* reference, int64_t vocab) {
  const double reference_sum = log_sum(reference, vocab);
  double kl = 0;
  for (int64_t i = 0; i < vocab; ++i) {
    const double log_p = static_cast<double>(reference[i]) - reference_sum;
    kl += std::exp(log_p) * (log_p - (static_cast<double>(model[i]) - model_sum));
  }
  return std::max(0.0, kl);
}

Result<std::unique_ptr<DirectRunner>> make_runner(const ScoredModel& model, int64_t longest) {
  return DirectRunner::make(model.base->config(), model.base->table, *model.base->backend,
                            {model.variant}, longest, kRows);
}

}  // namespace

Result<std::vector<Passage>> cut_passages(const std::vector<int32_t>& begin,
                                          const std::vector<int32_t>& ids, int64_t context) {
  const auto n = static_cast<int64_t>(ids.size()), extra = static_cast<int64_t>(begin.size());
  const int64_t first = std::max<int64_t>(1, extra), step = std::max<int64_t>(1, context - extra);
  std::vector<Passage> passages;
  for (int64_t at = 0; at < n; at += step) {
    Passage passage{begin, first};
    passage.ids.insert(passage.ids.end(), ids.begin() + at, ids.begin() + std::min(n, at + step));
    if (static_cast<int64_t>(passage.ids.size()) > first) passages.push_back(std::move(passage));
  }
  if (passages.empty()) return invalid_argument("the text is too short to be scored");
  return passages;
}

Result<std::vector<Passage>> text_passages(const TextAssets& text, const std::string& content,
                                           int64_t context) {
  EncodeOptions encode;
  encode.parse_special = false;
  const std::vector<int32_t> ids = text.tokenizer->encode(content, encode);
  encode.add_special = true;
  return cut_passages(text.tokenizer->encode("", encode), ids, context);
}

std::optional<int32_t> token_after(const std::vector<int32_t>& passage,
                                   const std::vector<int32_t>& chat) {
  if (chat.size() <= passage.size() || !std::equal(passage.begin(), passage.end(), chat.begin()))
    return std::nullopt;
  return chat[passage.size()];
}

Result<std::vector<Passage>> question_passages(const TextAssets& text,
                                               const std::vector<Question>& questions) {
  std::vector<Passage> passages;
  EncodeOptions encode;
  encode.parse_special = false;
  std::optional<int32_t> end;
  for (const Question& question : questions) {
    Passage passage;
    ASSIGN_OR_RETURN(passage.ids, question_ids(text, question));
    passage.first = static_cast<int64_t>(passage.ids.size());
    const std::vector<int32_t> answer = text.tokenizer->encode(question.answer, encode);
    passage.ids.insert(passage.ids.end(), answer.begin(), answer.end());
    if (!end) {
      ASSIGN_OR_RETURN(const std::vector<int32_t> chat,
                       answered_message_ids(text, question.prompt, question.answer));
      end = token_after(passage.ids, chat);
    }
    passages.push_back(std::move(passage));
  }
  if (!end && !text.eos_ids.empty()) end = text.eos_ids[0];
  if (end)
    for (Passage& passage : passages) passage.ids.push_back(*end);
  return passages;
}

Result<PassageScores> score_passages(const ScoredModel& model, const ScoredModel* reference,
                                     const std::vector<Passage>& passages,
                                     const Progress& progress) {
  const int64_t vocab = model.vocab();
  if (reference != nullptr && reference->vocab() != vocab)
    return unimplemented(fmt::format("the reference has {} tokens, the model {}; expected as many",
                                     reference->vocab(), vocab));
  int64_t longest = 0, total = 0, done = 0;
  for (const Passage& passage : passages) {
    const auto n = static_cast<int64_t>(passage.ids.size());
    longest = std::max(longest, n);
    total += n;
    for (const int32_t id : passage.ids)
      if (id >= vocab)
        return invalid_argument(
            fmt::format("token {} is none of the model's {} tokens", id, vocab));
  }
  const int64_t most = std::min(model.base->config().max_positions,
                                reference != nullptr ? reference->base->config().max_positions
                                                     : model.base->config().max_positions);
  if (longest > most)
    return invalid_argument(
        fmt::format("a passage of {} tokens; the model's context has {}", longest, most));
  ASSIGN_OR_RETURN(const auto runner, make_runner(model, longest));
  std::unique_ptr<DirectRunner> other;
  if (reference != nullptr) {
    ASSIGN_OR_RETURN(other, make_runner(*reference, longest));
  }
  PassageScores scores;
  for (const Passage& passage : passages) {
    const auto n = static_cast<int64_t>(passage.ids.size());
    runner->reset();
    if (other) other->reset();
    double nll = 0, kl = 0;
    for (int64_t at = 0; at + 1 < n; at += kRows) {
      const int64_t rows = std::min(kRows, n - 1 - at);
      const auto ids =
          std::span(passage.ids).subspan(static_cast<size_t>(at), static_cast<size_t>(rows));
      ASSIGN_OR_RETURN(const Logits ours, runner->append(0, ids, true));
      Logits theirs;
      if (other) {
        ASSIGN_OR_RETURN(theirs, other->append(0, ids, true));
      }
      for (int64_t r = std::max<int64_t>(0, passage.first - 1 - at); r < rows; ++r) {
        const float* row = ours.values.row<float>(r);
        const double sum = log_sum(row, vocab);
        nll += sum - static_cast<double>(row[passage.ids[static_cast<size_t>(at + r + 1)]]);
        if (!other) continue;
        const float* expected = theirs.values.row<float>(r);
        kl += divergence(row, sum, expected, vocab);
        scores.agreed += top_of(row, vocab) == top_of(expected, vocab);
      }
    }
    scores.nll.add(nll, n - passage.first);
    if (other) scores.kl.add(kl, n - passage.first);
    done += n;
    if (progress) progress(done, total);
  }
  return scores;
}

}  // namespace deltad
