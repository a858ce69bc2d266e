// deltactl eval: how good a base and its variants are: exact match on questions, perplexity, and
// the difference from a reference model, each with a 95 % interval.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "delta/variant_path.h"
#include "delta/variant_text.h"
#include "deltactl/commands.h"
#include "deltactl/console.h"
#include "deltactl/model_session.h"
#include "engine/engine.h"
#include "eval/answers.h"
#include "eval/passages.h"
#include "io/safetensors.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  ModelOptions model;
  std::string questions, text, reference, url, answers;
  std::vector<std::string> models;
  int max_tokens = 64, concurrency = 16;
  int64_t context = 1024;
  bool json = false;
};

// One that is evaluated.
struct Subject {
  std::string name;
  std::string path;  // of the variant; "": the base
  VariantRef variant;
};

Json interval_json(const std::optional<Interval>& interval) {
  return interval ? Json::array({interval->low, interval->high}) : Json();
}

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

Result<int> finish(const Options& options, const Json& results) {
  if (options.json) {
    // One model's figures stand alone.
    print_json(results.size() == 1 ? results[0] : Json{{"results", results}});
    return 0;
  }
  for (const Json& result : results) {
    fmt::print("{}\n", result["model"].get<std::string>());
    if (result.contains("exact_match"))
      fmt::print("  exact match: {} of {}: {}\n", result["correct"].get<int64_t>(),
                 result["n"].get<int64_t>(), with_interval(result, "exact_match", 4));
    if (result.contains("answers")) print_scores("the answers", result["answers"]);
    if (result.contains("text")) print_scores("the text", result["text"]);
  }
  fmt::print("In brackets: 95 % intervals (Wilson for shares, normal over passages for means).\n");
  return 0;
}

Result<int> run_on_server(const Options& options) {
  if (options.questions.empty() || !options.text.empty() || !options.reference.empty() ||
      !options.model.base.empty() || !options.model.deltas.empty())
    return invalid_argument(
        "a server (--url) is asked --questions; --base, --delta, --text and --reference are for "
        "evaluation in this process");
  if (options.models.empty())
    return invalid_argument("--url needs --model: a name in the server's /v1/models");
  ASSIGN_OR_RETURN(const std::vector<Question> questions, read_questions(options.questions));
  ServerModel server;
  ASSIGN_OR_RETURN(server.url, client::parse_url(options.url));
  const char* key = std::getenv("DELTAD_API_KEY");
  server.api_key = key != nullptr ? key : "";
  Json results = Json::array();
  for (const std::string& model : options.models) {
    ProgressBar bar("asking " + model);
    server.model = model;
    ASSIGN_OR_RETURN(
        const std::vector<std::string> answers,
        ask_server(server, questions, options.max_tokens, options.concurrency, bar.callback()));
    if (!options.answers.empty())
      RETURN_IF_ERROR(write_answers(options.answers, questions, answers));
    Json result = {{"model", model}};
    result.update(exact_match_json(questions, answers));
    results.push_back(result);
  }
  return finish(options, results);
}

// The reference, and what it keeps alive beside the evaluated models.
struct Reference {
  ModelSession own;
  ScoredModel model;
};

// "base", a variant, or a model of its own.
Result<Reference> open_reference(const Options& options, const ModelSession& session) {
  Reference reference;
  reference.model.base = session.base.get();
  if (options.reference == "base") return reference;
  const bool is_model =
      std::filesystem::path(options.reference).extension() == ".gguf" ||
      file_exists((std::filesystem::path(options.reference) / "config.json").string());
  if (is_model) {
    ModelOptions model = options.model;
    model.base = options.reference;
    model.deltas.clear();
    ASSIGN_OR_RETURN(reference.own, open_session(model));
    reference.model.base = reference.own.base.get();
    return reference;
  }
  VariantLoadOptions load;
  load.base_digest = session.base->digest;
  load.architecture = session.base->config().architecture;
  ASSIGN_OR_RETURN(reference.model.variant,
                   load_variant(variant_name_of(options.reference), options.reference,
                                session.base->table, *session.base->backend, load));
  return reference;
}

class LocalEvaluation {
 public:
  LocalEvaluation(const Options& options, const ModelSession& session)
      : options_(options), session_(session) {}

  Status prepare() {
    if (!options_.questions.empty()) {
      ASSIGN_OR_RETURN(questions_, read_questions(options_.questions));
      ASSIGN_OR_RETURN(engine_, Engine::make(session_.base->config(), session_.base->table,
                                             *session_.base->backend, EngineOptions{}));
    }
    if (!options_.text.empty()) {
      ASSIGN_OR_RETURN(text_, read_file(options_.text));
    }
    if (!options_.reference.empty()) {
      ASSIGN_OR_RETURN(Reference opened, open_reference(options_, session_));
      reference_.emplace(std::move(opened));
    }
    return {};
  }

  Result<Json> run(const Subject& subject) {
    ASSIGN_OR_RETURN(const auto text, variant_text(subject.path, session_.base->text));
    if (!text) return invalid_argument(options_.model.base + ": the model has no tokenizer");
    Json result = {{"model", subject.name}};
    if (!questions_.empty()) {
      {
        ProgressBar bar("asking " + subject.name);
        ASSIGN_OR_RETURN(const std::vector<std::string> answers,
                         answer_questions(*engine_, subject.variant, text, questions_,
                                          options_.max_tokens, bar.callback()));
        if (!options_.answers.empty())
          RETURN_IF_ERROR(write_answers(options_.answers, questions_, answers));
        result.update(exact_match_json(questions_, answers));
      }
      ASSIGN_OR_RETURN(const std::vector<Passage> passages, question_passages(*text, questions_));
      ASSIGN_OR_RETURN(result["answers"], score(subject, passages));
    }
    if (!text_.empty()) {
      const int64_t context = std::min(options_.context, session_.base->config().max_positions);
      auto passages = text_passages(*text, text_, context);
      if (!passages.ok()) return passages.status().in(options_.text);
      ASSIGN_OR_RETURN(result["text"], score(subject, *passages));
    }
    return result;
  }

 private:
  Result<Json> score(const Subject& subject, const std::vector<Passage>& passages) {
    ProgressBar bar("scoring " + subject.name);
    ASSIGN_OR_RETURN(
        const PassageScores scores,
        score_passages({session_.base.get(), subject.variant},
                       reference_ ? &reference_->model : nullptr, passages, bar.callback()));
    return scores_json(scores, reference_.has_value());
  }

  const Options& options_;
  const ModelSession& session_;
  std::vector<Question> questions_;
  std::string text_;
  std::unique_ptr<Engine> engine_;
  std::optional<Reference> reference_;
};

Result<int> run(const Options& options) {
  if (!options.answers.empty() && std::max(options.models.size(), options.model.deltas.size()) > 1)
    return invalid_argument("--answers is for one model at a time");
  if (!options.url.empty()) return run_on_server(options);
  if (options.model.base.empty()) return invalid_argument("give --base, or --url for a server");
  if (!options.models.empty()) return invalid_argument("--model is for a server (--url)");
  if (options.questions.empty() && options.text.empty())
    return invalid_argument("give --questions or --text, or both");
  ASSIGN_OR_RETURN(const ModelSession session, open_session(options.model));
  std::vector<Subject> subjects;
  for (size_t i = 0; i < session.variants.size(); ++i)
    subjects.push_back({session.variants[i]->name, options.model.deltas[i], session.variants[i]});
  if (subjects.empty()) subjects.push_back({session.base->name, "", nullptr});
  LocalEvaluation evaluation(options, session);
  RETURN_IF_ERROR(evaluation.prepare());
  Json results = Json::array();
  for (const Subject& subject : subjects) {
    ASSIGN_OR_RETURN(Json result, evaluation.run(subject));
    results.push_back(std::move(result));
  }
  return finish(options, results);
}

}  // namespace

void add_eval(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("eval", "Measure a base, or variants of it, on questions or a text");
  add_model_options(command, &options->model, true);
  command->get_option("--base")->required(false);
  command->add_option("--questions", options->questions,
                      "JSON lines {\"prompt\", \"answer\"}: asked as chats, judged by exact match");
  command->add_option("--text", options->text, "A text file, for perplexity");
  command->add_option("--reference", options->reference,
                      "What to compare distributions with: base, a variant or a model");
  command->add_option("--url", options->url, "Ask a running server instead");
  command->add_option("--model", options->models, "The server's name for a model; may be repeated");
  command->add_option("--answers", options->answers, "File for the answers, as JSON lines");
  command->add_option("--max-tokens", options->max_tokens, "Longest answer")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command->add_option("--context", options->context, "Tokens of one piece of the text")
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  command->add_option("--concurrency", options->concurrency, "Questions with the server at once")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  add_json_option(command, &options->json);
  run_command(command, exit_code, &options->json, [options] { return run(*options); });
}

}  // namespace deltad
