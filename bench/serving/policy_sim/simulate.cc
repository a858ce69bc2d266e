#include "bench/serving/policy_sim/simulate.h"

#include <algorithm>
#include <queue>
#include <random>
#include <tuple>

#include "base/check.h"

namespace deltad::policy_sim {
namespace {

constexpr int64_t kMeanBytes = 1000;

class SimClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void set(double seconds) { now_ = TimePoint(from_seconds(seconds)); }

 private:
  TimePoint now_{};
};

class Simulation {
 public:
  Simulation(int variants, const SimOptions& options, double half_life,
             std::unique_ptr<EvictionPolicy> policy)
      : options_(options), cache_(cache_options(variants, half_life), clock_, std::move(policy)) {
    for (int i = 0; i < variants; ++i) {
      const VariantId id = cache_.add("v" + std::to_string(i));
      CHECK(id == static_cast<VariantId>(i + 1), "ids are not consecutive");
    }
    waiting_.resize(static_cast<size_t>(variants));
    result_.loads_of.resize(static_cast<size_t>(variants));
  }

  SimResult run(const std::vector<TraceRequest>& trace) {
    size_t next = 0;
    while (next < trace.size() || !events_.empty()) {
      const bool arrival = next < trace.size() &&
                           (events_.empty() || trace[next].time <= std::get<0>(events_.top()));
      if (arrival) {
        now_ = trace[next].time;
        clock_.set(now_);
        arrive(trace[next++].variant);
      } else {
        const auto [time, kind, variant] = events_.top();
        events_.pop();
        now_ = time;
        clock_.set(now_);
        const VariantId id = static_cast<VariantId>(variant + 1);
        if (kind == kLoaded)
          cache_.load_ended(id, Status(), bytes_[static_cast<size_t>(variant)]);
        else
          cache_.release(id);
      }
      if (cache_.wake_time() <= clock_.now()) cache_.tick();
      perform();
    }
    CHECK(served_ == trace.size(), "a request was not served");
    const CacheStats& stats = cache_.stats();
    CHECK(stats.requests == trace.size(), "a request was not counted");
    result_.hit_ratio = static_cast<double>(stats.hits) / static_cast<double>(stats.requests);
    result_.loads = stats.loads;
    result_.wait_seconds = waited_ / static_cast<double>(trace.size());
    return result_;
  }

 private:
  enum Kind { kLoaded, kDone };

  CacheOptions cache_options(int variants, double half_life) {
    std::mt19937_64 random(options_.seed);
    int64_t total = 0, largest = 0;
    for (int i = 0; i < variants; ++i) {
      bytes_.push_back(kMeanBytes * 4 / 5 + static_cast<int64_t>(random() % (kMeanBytes * 2 / 5)));
      total += bytes_.back();
      largest = std::max(largest, bytes_.back());
    }
    CacheOptions out;
    out.device_bytes =
        std::max(largest, static_cast<int64_t>(options_.budget_share * static_cast<double>(total)));
    out.half_life_seconds = half_life;
    out.max_loads = 4;
    return out;
  }

  void arrive(int variant) {
    const Result<bool> admitted = cache_.want(static_cast<VariantId>(variant + 1));
    CHECK(admitted.ok(), "a request was refused");
    if (*admitted)
      serve(variant);
    else
      waiting_[static_cast<size_t>(variant)].push_back(now_);
  }

  void serve(int variant) {
    ++served_;
    events_.push({now_ + options_.run_seconds, kDone, variant});
  }

  void perform() {
    for (auto actions = cache_.take_actions(); !actions.empty(); actions = cache_.take_actions())
      for (const CacheAction& action : actions) perform(action);
  }

  void perform(const CacheAction& action) {
    const int variant = static_cast<int>(action.id) - 1;
    const auto index = static_cast<size_t>(variant);
    switch (action.kind) {
      case CacheAction::Kind::kMeasure:
        return cache_.measured(action.id, bytes_[index], "");
      case CacheAction::Kind::kLoad:
        if (now_ >= options_.warm_up_seconds) ++result_.loads_of[index];
        CHECK(cache_.tier(Tier::kDevice).used <= cache_.tier(Tier::kDevice).budget,
              "the budget is passed");
        events_.push({now_ + options_.load_seconds * static_cast<double>(action.bytes) / kMeanBytes,
                      kLoaded, variant});
        return;
      case CacheAction::Kind::kFree:
        return cache_.freed(action.id, action.tier);
      case CacheAction::Kind::kAdmit:
        for (const double since : waiting_[index]) {
          waited_ += now_ - since;
          serve(variant);
        }
        waiting_[index].clear();
        return;
      case CacheAction::Kind::kPromote:
      case CacheAction::Kind::kDemote:
      case CacheAction::Kind::kCancel:
      case CacheAction::Kind::kFail:
        CHECK(false, "an action that this trace does not lead to");
    }
  }

  const SimOptions options_;
  SimClock clock_;
  std::vector<int64_t> bytes_;
  DeltaCache cache_;
  double now_ = 0, waited_ = 0;
  size_t served_ = 0;
  std::vector<std::vector<double>> waiting_;  // since when, by variant
  using Event = std::tuple<double, int, int>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  SimResult result_;
};

}  // namespace

SimResult simulate(const std::vector<TraceRequest>& trace, int variants, const SimOptions& options,
                   double half_life_seconds, std::unique_ptr<EvictionPolicy> policy) {
  return Simulation(variants, options, half_life_seconds, std::move(policy)).run(trace);
}

}  // namespace deltad::policy_sim
