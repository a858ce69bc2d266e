// bench_pool: what a pool of adapters keeps of their quality, with the real base in this process.
// Adds the given adapters one after the other to a new pool and prints a JSON line for each with
// all that was tried, then one with every adapter's score on held-out questions, single and as the
// pool (or, if it was refused, the base) answers at the end.
//
// Adapters lie in FOLDER/NAME (with questions.jsonl, the held-out ones), the questions of the gate
// in GATE/NAME.jsonl. Scores are kept in a file of lines "VARIANT-DIGEST QUESTIONS-DIGEST SCORE",
// so that many runs share them. bench/quality/pool_table.py drives it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "delta/digest.h"
#include "delta/loader.h"
#include "engine/base_model.h"
#include "eval/answers.h"
#include "merge/adapter_pool.h"

namespace deltad {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
constexpr int kMaxTokens = 64;

struct Options {
  std::string base, adapters, gate, work, cache, policy = "shrink-first", merge_by = "best";
  std::vector<std::string> order, score;
  int64_t budget = 0;
  double keep_share = 0.9, max_dropped_energy = 0.1;
};

std::string digest_of(const std::vector<Question>& questions) {
  TensorHasher hasher;
  int64_t bytes = 0;
  for (const Question& q : questions) {
    const std::string line = q.prompt + '\0' + q.answer + '\0';
    hasher.update(line.data(), static_cast<int64_t>(line.size()));
    bytes += static_cast<int64_t>(line.size());
  }
  return variant_digest({{"questions", {DType::kU8, Shape{bytes}, hasher.finish()}}});
}

class CachedScorer final : public PoolScorer {
 public:
  CachedScorer(BaseModel& base, Engine& engine, const std::string& cache)
      : base_(base), engine_(engine), file_(cache, std::ios::app) {
    std::ifstream in(cache);
    std::string variant, questions;
    double score = 0;
    while (in >> variant >> questions >> score) known_[{variant, questions}] = score;
  }

  // path "": the base.
  Result<double> score(const std::string& path, const std::vector<Question>& questions) override {
    VariantRef variant;
    if (!path.empty()) {
      VariantLoadOptions load;
      load.base_digest = base_.digest;
      load.architecture = base_.config().architecture;
      ASSIGN_OR_RETURN(variant, load_variant("v", path, base_.table, *base_.backend, load));
    }
    const std::pair key{variant ? variant->digest : "base", digest_of(questions)};
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
    ASSIGN_OR_RETURN(
        const std::vector<std::string> answers,
        answer_questions(engine_, variant, base_.text, questions, kMaxTokens, nullptr));
    const double score = static_cast<double>(exact_matches(questions, answers)) /
                         static_cast<double>(questions.size());
    known_[key] = score;
    file_ << key.first << ' ' << key.second << ' ' << fmt::format("{}", score) << std::endl;
    return score;
  }

 private:
  BaseModel& base_;
  Engine& engine_;
  std::ofstream file_;
  std::map<std::pair<std::string, std::string>, double> known_;
};

// With a gate that accepts all nothing need be asked.
class AcceptingScorer final : public PoolScorer {
 public:
  Result<double> score(const std::string&, const std::vector<Question>&) override { return 1.0; }
};

class NoPublisher final : public PoolPublisher {
 public:
  Status publish(const PoolView&) override { return {}; }
};

Json report_json(const PoolReport& report, const Status& status) {
  Json json = {{"operation", report.operation},     {"accepted", report.accepted},
               {"budget", report.budget},           {"bytes_before", report.bytes_before},
               {"bytes_after", report.bytes_after}, {"single_score", report.single_score}};
  if (!status.ok()) json["error"] = status.message();
  json["trials"] = Json::array();
  for (const PoolTrial& t : report.trials) {
    Json scores = Json::object();
    for (const PoolAdapter& a : t.scores)
      scores[a.name] = {{"single", a.single_score}, {"score", a.score}, {"share", a.share()}};
    json["trials"].push_back({{"step", pool_step_name(t.step)},
                              {"adapters", t.adapters},
                              {"similarity", t.similarity},
                              {"kept_energy", t.kept_energy},
                              {"bytes_before", t.bytes_before},
                              {"bytes_after", t.bytes_after},
                              {"bits", t.bits},
                              {"rank", t.rank},
                              {"scores", scores},
                              {"accepted", t.accepted},
                              {"reason", t.reason}});
  }
  return json;
}

void print(const Json& json) {
  fmt::print("{}\n", json.dump());
  std::fflush(stdout);
}

Status run(const Options& options) {
  ASSIGN_OR_RETURN(const auto base, load_base_model(options.base, CpuBackendOptions(), nullptr));
  ASSIGN_OR_RETURN(const auto engine,
                   Engine::make(base->config(), base->table, *base->backend, {}));
  CachedScorer scorer(*base, *engine, options.cache);
  // --score PATH=QUESTIONS…
  for (const std::string& what : options.score) {
    const size_t at = what.rfind('=');
    if (at == std::string::npos) return invalid_argument(what + ": expected PATH=QUESTIONS");
    ASSIGN_OR_RETURN(const auto questions, read_questions(what.substr(at + 1)));
    ASSIGN_OR_RETURN(const double score, scorer.score(what.substr(0, at), questions));
    print({{"path", what.substr(0, at)}, {"questions", what.substr(at + 1)}, {"score", score}});
  }
  if (options.order.empty()) return {};

  PoolOptions pool_options;
  pool_options.budget = options.budget;
  pool_options.keep_share = options.keep_share;
  pool_options.max_dropped_energy = options.max_dropped_energy;
  ASSIGN_OR_RETURN(pool_options.policy, parse_pool_policy(options.policy));
  ASSIGN_OR_RETURN(pool_options.merge_by, parse_pool_merge_by(options.merge_by));
  fs::remove_all(options.work);
  ASSIGN_OR_RETURN(const auto folder, DurableFolder::open(options.work));
  AcceptingScorer accepting;
  PoolScorer* gate = &scorer;
  if (options.keep_share <= 0) gate = &accepting;
  NoPublisher publisher;
  ASSIGN_OR_RETURN(const auto pool, AdapterPool::open(pool_options, base->table, base->digest,
                                                      *folder, *gate, publisher));
  for (const std::string& name : options.order) {
    PoolReport report;
    const Status added = pool->add(name, options.adapters + "/" + name,
                                   options.gate + "/" + name + ".jsonl", nullptr, &report);
    if (!added.ok() && added.code() != Code::kResourceExhausted) return added;
    print(report_json(report, added));
  }
  const PoolView view = pool->view();
  Json result = {{"bytes", view.bytes}, {"budget", view.budget}, {"members", view.members.size()}};
  for (const std::string& name : options.order) {
    const std::string at = options.adapters + "/" + name;
    ASSIGN_OR_RETURN(const auto questions, read_questions(at + "/questions.jsonl"));
    ASSIGN_OR_RETURN(const double single, scorer.score(at, questions));
    const PoolAdapter* adapter = view.adapter(name);
    const PoolMember* member = adapter ? view.member(adapter->member) : nullptr;
    ASSIGN_OR_RETURN(const double score, scorer.score(member ? member->path : "", questions));
    result["adapters"][name] = {
        {"single", single}, {"score", score}, {"pooled", member != nullptr}};
    if (member == nullptr) continue;
    result["adapters"][name].update({{"bits", member->bits},
                                     {"rank", member->rank},
                                     {"bytes", member->bytes},
                                     {"shared_by", member->adapters.size()}});
  }
  print(result);
  return {};
}

}  // namespace
}  // namespace deltad

int main(int argc, char** argv) {
  deltad::Options options;
  CLI::App app("A pool of adapters with the real base");
  app.add_option("--base", options.base)->required();
  app.add_option("--adapters", options.adapters, "Folder of adapter folders");
  app.add_option("--gate", options.gate, "Folder of NAME.jsonl: the questions of the gate");
  app.add_option("--order", options.order, "Names")->delimiter(',');
  app.add_option("--budget", options.budget, "Bytes");
  app.add_option("--policy", options.policy);
  app.add_option("--merge-by", options.merge_by);
  app.add_option("--keep-share", options.keep_share, "0: no gate");
  app.add_option("--max-dropped-energy", options.max_dropped_energy);
  app.add_option("--work", options.work, "Folder of the pool: emptied first");
  app.add_option("--cache", options.cache, "File of scores")->required();
  app.add_option("--score", options.score, "PATH=QUESTIONS.jsonl (PATH empty: the base)");
  CLI11_PARSE(app, argc, argv);
  const deltad::Status status = deltad::run(options);
  if (!status.ok()) fmt::print(stderr, "bench_pool: {}\n", status.message());
  return status.ok() ? 0 : 1;
}
