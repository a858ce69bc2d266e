#include "merge/adapter_pool.h"

#include <fmt/format.h>

#include <utility>

#include "delta/variant_name.h"
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
        scorer_(scorer),
        publisher_(publisher),
        view_(view_of(store_)) {}

  Status add(const std::string& name, const std::string&, const std::string&, const PoolProgress&,
             PoolReport*) override {
    RETURN_IF_ERROR(check_variant_name(name));
    return unimplemented("add");
  }
  Status remove(const std::string&) override { return unimplemented("remove"); }
  Status set_budget(int64_t, const PoolProgress&, PoolReport*) override {
    return unimplemented("set_budget");
  }

  PoolView view() const override {
    MutexLock lock(mutex_);
    return view_;
  }

  Status publish() { return publisher_.publish(view()); }

 private:
  const PoolOptions options_;
  [[maybe_unused]] const WeightTable& table_;
  PoolStore store_;
  [[maybe_unused]] PoolScorer& scorer_;
  PoolPublisher& publisher_;
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
  RETURN_IF_ERROR(pool->publish());
  return std::unique_ptr<AdapterPool>(std::move(pool));
}

}  // namespace deltad
