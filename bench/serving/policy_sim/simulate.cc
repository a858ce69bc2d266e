#include "bench/serving/policy_sim/simulate.h"

#include <algorithm>
#include <queue>
#include <random>
#include <tuple>
#include <unordered_map>

#include "base/check.h"
#include "router/router_core.h"

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
      : options_(options),
        core_(core_options(variants, half_life), nullptr, releases_, clock_, std::move(policy)) {
    for (int i = 0; i < variants; ++i) {
      auto entry = std::make_shared<CatalogEntry>();
      entry->name = entry->path = "v" + std::to_string(i);
      CHECK(core_.add(entry).ok(), "a variant was refused");
      CHECK(entry->id == static_cast<VariantId>(i + 1), "ids are not consecutive");
      models_.push_back(*core_.resolve(entry->name));
    }
    result_.loads_of.resize(static_cast<size_t>(variants));
  }

  SimResult run(const std::vector<TraceRequest>& trace) {
    size_t next = 0;
    while (next < trace.size() || !events_.empty()) {
      const bool arrival = next < trace.size() &&
                           (events_.empty() || trace[next].time <= std::get<0>(events_.top()));
      if (arrival) {
        pass_to(trace[next].time);
        arrive(trace[next++].variant);
      } else {
        const auto [time, kind, which] = events_.top();
        events_.pop();
        pass_to(time);
        if (kind == kLoaded)
          load_ended(static_cast<VariantId>(which));
        else
          finish(which);
      }
      if (core_.wake_time() <= clock_.now()) core_.tick();
      perform();
    }
    CHECK(served_ == trace.size() && core_.requests() == 0, "a request was not served");
    const CacheStats& stats = core_.cache_stats();
    CHECK(stats.requests == trace.size(), "a request was not counted");
    result_.hit_ratio = static_cast<double>(stats.hits) / static_cast<double>(stats.requests);
    result_.loads = stats.loads;
    result_.wait_seconds = waited_ / static_cast<double>(trace.size());
    return result_;
  }

 private:
  enum Kind { kLoaded, kDone };

  RouterCoreOptions core_options(int variants, double half_life) {
    std::mt19937_64 random(options_.seed);
    int64_t total = 0, largest = 0;
    for (int i = 0; i < variants; ++i) {
      bytes_.push_back(kMeanBytes * 4 / 5 + static_cast<int64_t>(random() % (kMeanBytes * 2 / 5)));
      total += bytes_.back();
      largest = std::max(largest, bytes_.back());
    }
    RouterCoreOptions out;
    out.base_name = "base";
    out.max_waiting = out.max_waiting_per_variant = int64_t{1} << 40;  // every miss must load
    out.cache.device_bytes =
        std::max(largest, static_cast<int64_t>(options_.budget_share * static_cast<double>(total)));
    out.cache.half_life_seconds = half_life;
    out.cache.max_loads = 4;
    return out;
  }

  void pass_to(double time) {
    now_ = time;
    clock_.set(time);
  }

  void arrive(int variant) {
    auto submitted = core_.submit(models_[static_cast<size_t>(variant)], Request());
    CHECK(submitted.ok(), "a request was refused");
    if (submitted->ready)
      serve(submitted->ticket, std::move(*submitted->ready));
    else
      waiting_since_[submitted->ticket] = now_;
  }

  void serve(Ticket ticket, Request request) {
    ++served_;
    core_.dispatched(ticket, RequestHandle{ticket});
    core_.started(ticket);
    running_[ticket] = std::move(request.variant);
    events_.push({now_ + options_.run_seconds, kDone, ticket});
  }

  void finish(Ticket ticket) {
    running_.erase(ticket);  // the variant's handle with it
    core_.finished(ticket);
    core_.tick();  // sees that it is gone
  }

  void load_ended(VariantId id) {
    auto variant = std::make_shared<Variant>();
    variant->name = models_[id - 1].name;
    variant->bytes = static_cast<size_t>(bytes_[id - 1]);
    core_.load_ended(id, VariantRef(std::move(variant)), 0);
  }

  void perform() {
    for (auto effects = core_.take_effects(); !effects.empty(); effects = core_.take_effects())
      for (RouterEffect& effect : effects) perform(effect);
  }

  void perform(RouterEffect& effect) {
    switch (effect.kind) {
      case RouterEffect::Kind::kMeasure:
        return core_.measured(effect.entry->id, VariantSize{bytes_[effect.entry->id - 1], ""});
      case RouterEffect::Kind::kLoad: {
        const VariantId id = effect.entry->id;
        if (now_ >= options_.warm_up_seconds) ++result_.loads_of[id - 1];
        const CacheTierInfo device = core_.tier(Tier::kDevice);
        CHECK(device.used <= device.budget, "the budget is passed");
        const double took = options_.load_seconds * static_cast<double>(effect.bytes) / kMeanBytes;
        events_.push({now_ + took, kLoaded, id});
        return;
      }
      case RouterEffect::Kind::kFree:
        effect.variant.reset();
        return core_.freed(effect.entry->id, effect.tier);
      case RouterEffect::Kind::kDispatch: {
        const auto since = waiting_since_.find(effect.ticket);
        waited_ += now_ - since->second;
        waiting_since_.erase(since);
        return serve(effect.ticket, std::move(effect.request));
      }
      default:
        CHECK(false, "an effect that this trace does not lead to");
    }
  }

  const SimOptions options_;
  SimClock clock_;
  std::vector<int64_t> bytes_;  // index: variant
  const std::shared_ptr<ReleaseBox> releases_ = std::make_shared<ReleaseBox>();
  RouterCore core_;
  std::vector<ModelHandle> models_;  // index: variant
  double now_ = 0, waited_ = 0;
  size_t served_ = 0;
  std::unordered_map<Ticket, double> waiting_since_;
  std::unordered_map<Ticket, VariantRef> running_;
  using Event = std::tuple<double, int, uint64_t>;  // when, what, of which variant or request
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  SimResult result_;
};

}  // namespace

SimResult simulate(const std::vector<TraceRequest>& trace, int variants, const SimOptions& options,
                   double half_life_seconds, std::unique_ptr<EvictionPolicy> policy) {
  return Simulation(variants, options, half_life_seconds, std::move(policy)).run(trace);
}

}  // namespace deltad::policy_sim
