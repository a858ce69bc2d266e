// deltactl eval: how good a base and its variants are: exact match on questions, perplexity, and
// the difference from a reference model, each with a 95 % interval.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "delta/variant_path.h"
#include "delta/variant_text.h"
#include "deltactl/commands.h"
#include "deltactl/console.h"
#include "deltactl/eval_report.h"
#include "deltactl/model_session.h"
#include "deltactl/tls_options.h"
#include "engine/engine.h"
#include "eval/answers.h"
#include "eval/passages.h"
#include "eval/server_passages.h"
#include "io/file_reader.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  ModelOptions model;
  std::string questions, text, reference, url, answers;
  std::vector<std::string> models;
  int max_tokens = 64, concurrency = 16;
  int64_t context = 1024;
  client::TlsOptions tls;
  bool json = false;
};

// One that is evaluated.
struct Subject {
  std::string name;
  std::string path;  // of the variant; "": the base
  VariantRef variant;
};

// −log p of the answers and of the text, for what the server tells of them.
class ServerEvaluation {
 public:
  ServerEvaluation(const Options& options, const ServerModel& server)
      : options_(options), server_(server) {}

  Result<Json> run(const std::vector<Question>& questions, const std::string& text) const {
    Json result = {{"model", server_.model}};
    if (!questions.empty()) {
      ASSIGN_OR_RETURN(const std::vector<std::string> answers, ask(questions));
      if (!options_.answers.empty())
        RETURN_IF_ERROR(write_answers(options_.answers, questions, answers));
      result.update(exact_match_json(questions, answers));
      // Exact match needs nothing but chat completions; a server may have no more.
      const Result<Json> scores =
          score(server_question_passages(server_, questions, options_.concurrency));
      if (scores.ok())
        result["answers"] = *scores;
      else
        result["answers_unavailable"] = scores.status().message();
    }
    if (!text.empty()) {
      auto scores = score(server_text_passages(server_, text, options_.context));
      if (!scores.ok())
        return scores.status().in(
            "perplexity by --url needs /tokenize, and /v1/completions with echo, logprobs and "
            "max_tokens 0, as deltad has them");
      result["text"] = std::move(*scores);
    }
    return result;
  }

 private:
  Result<std::vector<std::string>> ask(const std::vector<Question>& questions) const {
    ProgressBar bar("asking " + server_.model);
    return ask_server(server_, questions, options_.max_tokens, options_.concurrency,
                      bar.callback());
  }
  Result<Json> score(const Result<std::vector<Passage>>& passages) const {
    RETURN_IF_ERROR(passages.status());
    ProgressBar bar("scoring " + server_.model);
    PassageScores scores;
    ASSIGN_OR_RETURN(scores.nll,
                     server_nll(server_, *passages, options_.concurrency, bar.callback()));
    return scores_json(scores, false);
  }

  const Options& options_;
  const ServerModel& server_;
};

Result<int> run_on_server(const Options& options) {
  if (!options.model.base.empty() || !options.model.deltas.empty())
    return invalid_argument("a server (--url) has its models: give --model, not --base or --delta");
  if (!options.reference.empty())
    return invalid_argument(
        "--reference compares whole distributions, and a server (--url) tells the probabilities of "
        "a few tokens only: evaluate with --base in this process");
  if (options.models.empty())
    return invalid_argument("--url needs --model: a name in the server's /v1/models");
  std::vector<Question> questions;
  std::string text;
  if (!options.questions.empty()) {
    ASSIGN_OR_RETURN(questions, read_questions(options.questions));
  }
  if (!options.text.empty()) {
    ASSIGN_OR_RETURN(text, read_file(options.text));
    if (text.empty())
      return invalid_argument(options.text + ": the text is too short to be scored");
  }
  const char* key = std::getenv("DELTAD_API_KEY");
  Json results = Json::array();
  for (const std::string& model : options.models) {
    ASSIGN_OR_RETURN(const ServerModel server,
                     ServerModel::find(options.url, model, key != nullptr ? key : "", options.tls));
    ASSIGN_OR_RETURN(Json result, ServerEvaluation(options, server).run(questions, text));
    results.push_back(std::move(result));
  }
  print_eval(results, options.json);
  return 0;
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
  ASSIGN_OR_RETURN(const TuneForm form, tune_form(options.reference));
  if (form == TuneForm::kModel) {
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
    if (!subject.path.empty()) result["delta"] = subject.path;
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
  if (options.url.empty() && options.model.base.empty())
    return invalid_argument("give --base, or --url for a server");
  if (options.questions.empty() && options.text.empty())
    return invalid_argument("give --questions or --text, or both");
  if (!options.url.empty()) return run_on_server(options);
  if (!options.models.empty()) return invalid_argument("--model is for a server (--url)");
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
  print_eval(results, options.json);
  return 0;
}

}  // namespace

void add_eval(Command& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  Command* command =
      app.add_subcommand("eval", "Measure a base, or variants of it, on questions or a text");
  add_model_options(command, &options->model, true)->required(false);
  command->add_option("--questions", options->questions,
                      "JSON lines {\"prompt\", \"answer\"}: asked as chats, judged by exact match");
  command->add_option("--text", options->text, "A text file, for perplexity");
  command->add_option("--reference", options->reference,
                      "What to compare distributions with: base, a variant, an adapter or a model");
  command->add_option("--url", options->url, "Ask a running server instead: http[s]://HOST:PORT");
  add_tls_options(command, &options->tls);
  command->add_option("--model", options->models, "The server's name for a model; may be repeated");
  command->add_option("--answers", options->answers, "File for the answers, as JSON lines");
  command->add_option("--max-tokens", options->max_tokens, "Longest answer")
      ->range(1, 1 << 24)
      ->show_default();
  command->add_option("--context", options->context, "Tokens of one piece of the text")
      ->range(2, 1 << 24)
      ->show_default();
  command->add_option("--concurrency", options->concurrency, "Questions with the server at once")
      ->range(1, 1024)
      ->show_default();
  add_json_option(command, &options->json);
  run_command(command, exit_code, &options->json, [options] { return run(*options); });
}

}  // namespace deltad
