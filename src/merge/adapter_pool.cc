#include "merge/adapter_pool.h"

#include <fmt/core.h>

#include <map>
#include <utility>

#include "delta/adapter_factors.h"
#include "delta/digest.h"
#include "delta/lora_adapter.h"
#include "delta/variant_name.h"
#include "io/file_reader.h"
#include "merge/pool_plan.h"
#include "merge/pool_state.h"

namespace deltad {
namespace {

template <typename T>
Result<T> parse_choice(const char* what, const std::string& text,
                       std::initializer_list<std::pair<const char*, T>> choices) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (text == name) return value;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  return invalid_argument(fmt::format("{} '{}': expected one of {}", what, text, names));
}

std::string digest_of(const std::string& questions) {
  TensorHasher hasher;
  const auto bytes = static_cast<int64_t>(questions.size());
  hasher.update(questions.data(), bytes);
  return variant_digest({{"questions", {DType::kU8, Shape{bytes}, hasher.finish()}}});
}

PoolView view_of(const PoolStore& store) {
  const PoolState& state = store.state();
  PoolView view;
  view.budget = state.budget;
  view.bytes = state.bytes();
  for (const auto& [name, a] : state.adapters)
    view.adapters.push_back(
        {name, a.member, a.single_score, state.scores.at({a.member, a.questions}), a.count});
  for (const auto& [digest, m] : state.members)
    view.members.push_back(
        {digest, store.member_path(digest), m.bytes, m.rank, m.bits, m.adapters});
  return view;
}

class Pool final : public AdapterPool {
 public:
  Pool(const PoolOptions& options, const WeightTable& table, PoolStore store, PoolScorer& scorer,
       PoolPublisher& publisher)
      : options_(options),
        table_(table),
        store_(std::move(store)),
        scores_(store_.state().scores),
        publisher_(publisher),
        world_{options_, table_, store_, scorer, questions_, scores_},
        view_(view_of(store_)) {}

  Status add(const std::string& name, const std::string& adapter_path,
             const std::string& questions_path, const PoolProgress& progress,
             PoolReport* report) override {
    *report = PoolReport();
    report->operation = "add " + name;
    RETURN_IF_ERROR(check_variant_name(name));
    if (store_.state().adapters.count(name) != 0)
      return conflict(fmt::format("the pool has an adapter '{}' already", name));
    ASSIGN_OR_RETURN(const std::string content, read_file(questions_path));
    ASSIGN_OR_RETURN(std::vector<Question> questions, parse_questions(content, questions_path));
    const std::string digest = digest_of(content);
    questions_[digest] = std::move(questions);
    ASSIGN_OR_RETURN(const LoraAdapter adapter, LoraAdapter::open(adapter_path, table_));
    if (!adapter.base_digest().empty() && adapter.base_digest() != store_.state().base_digest)
      return invalid_argument(
          fmt::format("{}: it was made for the base with digest {}, this one has {}", adapter_path,
                      adapter.base_digest(), store_.state().base_digest));
    ASSIGN_OR_RETURN(const AdapterFactorSet factors, read_factors(adapter));
    PoolPlan plan(world_, progress, report);
    Status planned = plan.add(name, adapter_path, factors, digest);
    if (planned.ok()) planned = plan.fit();
    return finish(planned, plan.next(), {{digest, content}}, report)
        .in(fmt::format("adapter '{}'", name));
  }

  Status remove(const std::string& name) override {
    PoolState next = store_.state();
    const auto at = next.adapters.find(name);
    if (at == next.adapters.end())
      return not_found(fmt::format("the pool has no adapter '{}'", name));
    StoredMember& member = next.members.at(at->second.member);
    std::erase(member.adapters, name);
    if (member.adapters.empty()) next.members.erase(at->second.member);
    next.adapters.erase(at);
    return commit(std::move(next), {});
  }

  Status set_budget(int64_t bytes, const PoolProgress& progress, PoolReport* report) override {
    *report = PoolReport();
    report->operation = "budget";
    if (bytes <= 0) return invalid_argument(fmt::format("a budget of {} bytes", bytes));
    PoolPlan plan(world_, progress, report);
    plan.next().budget = report->budget = bytes;
    const Status planned = plan.fit();
    return finish(planned, plan.next(), {}, report);
  }

  PoolView view() const override {
    MutexLock lock(mutex_);
    return view_;
  }

  // Reads what the state names, and has it served.
  Status begin() {
    for (const auto& [name, adapter] : store_.state().adapters) {
      if (questions_.count(adapter.questions) != 0) continue;
      ASSIGN_OR_RETURN(const std::string content, store_.questions(adapter.questions));
      ASSIGN_OR_RETURN(questions_[adapter.questions],
                       parse_questions(content, "the questions of adapter " + name));
    }
    for (const PoolMember& member : view().members) {
      auto adapter = LoraAdapter::open(member.path, table_);
      if (!adapter.ok()) return adapter.status().in("a member of the pool");
      if (adapter->digest() == member.digest && adapter->reader().size() == member.bytes) continue;
      return invalid_argument(fmt::format(
          "{}: it has digest {} and {} bytes, but the pool's state says {} and {}", member.path,
          adapter->digest(), adapter->reader().size(), member.digest, member.bytes));
    }
    return publisher_.publish(view());
  }

 private:
  Status finish(const Status& planned, PoolState next,
                const std::map<std::string, std::string>& questions, PoolReport* report) {
    if (!planned.ok()) {
      report->bytes_after = report->bytes_before;
      store_.clean();
      return planned;
    }
    RETURN_IF_ERROR(commit(std::move(next), questions));
    report->accepted = true;
    return {};
  }

  Status commit(PoolState next, const std::map<std::string, std::string>& questions) {
    next.scores.clear();
    for (const auto& [name, a] : next.adapters) {
      const std::pair key{a.member, a.questions};
      next.scores[key] = scores_.at(key);
    }
    RETURN_IF_ERROR(store_.commit(std::move(next), questions));
    PoolView now = view_of(store_);
    {
      MutexLock lock(mutex_);
      view_ = now;
    }
    // If it cannot be served the files of before stay until the next change: they may be in use.
    RETURN_IF_ERROR(publisher_.publish(now).in("the pool has changed, but is not served so"));
    store_.clean();
    return {};
  }

  const PoolOptions options_;
  const WeightTable& table_;
  PoolStore store_;
  std::map<std::string, std::vector<Question>> questions_;
  std::map<std::pair<std::string, std::string>, double> scores_;
  PoolPublisher& publisher_;
  const PoolWorld world_;
  mutable Mutex mutex_;
  PoolView view_ GUARDED_BY(mutex_);
};

}  // namespace

Result<PoolPolicy> parse_pool_policy(const std::string& text) {
  return parse_choice<PoolPolicy>(
      "pool policy", text,
      {{"shrink-first", PoolPolicy::kShrinkFirst}, {"kmerge", PoolPolicy::kKmerge}});
}

const char* pool_policy_name(PoolPolicy policy) {
  return policy == PoolPolicy::kKmerge ? "kmerge" : "shrink-first";
}

Result<PoolMergeBy> parse_pool_merge_by(const std::string& text) {
  return parse_choice<PoolMergeBy>("merge method", text,
                                   {{"best", PoolMergeBy::kBest},
                                    {"average", PoolMergeBy::kAverage},
                                    {"opcm", PoolMergeBy::kOpcm}});
}

const char* pool_merge_by_name(PoolMergeBy merge_by) {
  if (merge_by == PoolMergeBy::kBest) return "best";
  return merge_by == PoolMergeBy::kOpcm ? "opcm" : "average";
}

Result<std::unique_ptr<AdapterPool>> AdapterPool::open(const PoolOptions& options,
                                                       const WeightTable& table,
                                                       const std::string& base_digest,
                                                       DurableFolder& folder, PoolScorer& scorer,
                                                       PoolPublisher& publisher) {
  ASSIGN_OR_RETURN(PoolStore store, PoolStore::open(folder, base_digest, options.budget));
  auto pool = std::make_unique<Pool>(options, table, std::move(store), scorer, publisher);
  RETURN_IF_ERROR(pool->begin());
  return std::unique_ptr<AdapterPool>(std::move(pool));
}

}  // namespace deltad
