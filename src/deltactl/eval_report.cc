#include "deltactl/eval_report.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "deltactl/console.h"
#include "eval/answers.h"
#include "io/safetensors.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;

Json interval_json(const std::optional<Interval>& interval) {
  return interval ? Json::array({interval->low, interval->high}) : Json();
}

std::string with_interval(const Json& of, const char* key, int digits) {
  const Json& interval = of[std::string(key) + "_interval"];
  const std::string value = fmt::format("{:.{}f}", of[key].get<double>(), digits);
  if (interval.is_null()) return value;
  return fmt::format("{} [{:.{}f}, {:.{}f}]", value, interval[0].get<double>(), digits,
                     interval[1].get<double>(), digits);
}

void print_scores(const char* over, const Json& scores) {
  fmt::print("  perplexity of {} ({} tokens): {}\n", over, scores["tokens"].get<int64_t>(),
             with_interval(scores, "perplexity", 4));
  if (!scores.contains("kl")) return;
  fmt::print("    KL from the reference: {} nats\n", with_interval(scores, "kl", 5));
  fmt::print("    most likely token as the reference's: {}\n",
             with_interval(scores, "top1_agreement", 4));
}

}  // namespace

Json exact_match_json(const std::vector<Question>& questions,
                      const std::vector<std::string>& answers) {
  const int64_t hits = exact_matches(questions, answers);
  const auto n = static_cast<int64_t>(questions.size());
  return {{"exact_match", static_cast<double>(hits) / static_cast<double>(n)},
          {"n", n},
          {"correct", hits},
          {"exact_match_interval", interval_json(wilson_interval(hits, n))}};
}

Json scores_json(const PassageScores& scores, bool has_reference) {
  std::optional<Interval> perplexity = scores.nll.interval();
  if (perplexity) perplexity = Interval{std::exp(perplexity->low), std::exp(perplexity->high)};
  Json json = {{"tokens", scores.nll.tokens()},
               {"perplexity", std::exp(scores.nll.mean())},
               {"perplexity_interval", interval_json(perplexity)}};
  if (!has_reference) return json;
  const int64_t tokens = scores.nll.tokens();
  json["kl"] = scores.kl.mean();
  json["kl_interval"] = interval_json(scores.kl.interval());
  json["top1_agreement"] = static_cast<double>(scores.agreed) / static_cast<double>(tokens);
  json["top1_agreement_interval"] = interval_json(wilson_interval(scores.agreed, tokens));
  return json;
}

Status write_answers(const std::string& path, const std::vector<Question>& questions,
                     const std::vector<std::string>& answers) {
  std::string lines;
  for (size_t i = 0; i < questions.size(); ++i)
    lines += Json{{"prompt", questions[i].prompt},
                  {"expected", questions[i].answer},
                  {"text", answers[i]}}
                 .dump(-1, ' ', false, Json::error_handler_t::replace) +
             "\n";
  return write_file(path, lines);
}

void print_eval(const Json& results, bool json) {
  if (json) {
    print_json(results.size() == 1 ? results[0] : Json{{"results", results}});
    return;
  }
  for (const Json& result : results) {
    fmt::print("{}\n", result["model"].get<std::string>());
    if (result.contains("exact_match"))
      fmt::print("  exact match: {} of {}: {}\n", result["correct"].get<int64_t>(),
                 result["n"].get<int64_t>(), with_interval(result, "exact_match", 4));
    if (result.contains("answers")) print_scores("the answers", result["answers"]);
    if (result.contains("answers_unavailable"))
      fmt::print("  perplexity of the answers: not available: {}\n",
                 result["answers_unavailable"].get<std::string>());
    if (result.contains("text")) print_scores("the text", result["text"]);
  }
  fmt::print("In brackets: 95 % intervals (Wilson for shares, normal over passages for means).\n");
}

}  // namespace deltad
