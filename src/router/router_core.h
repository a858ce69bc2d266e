// RouterCore: the router without threads, locks or I/O. Events go in (a request, a cancellation, a
// load that ended), effects come out (load this, hand that to the engine) for the caller to carry
// out. It holds the catalog, the delta cache, the requests that wait and those that run. Used by
// Router under its mutex, and by tests with a fake clock.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/bounded_counts.h"
#include "base/histogram.h"
#include "engine/request.h"
#include "router/catalog.h"
#include "router/delta_cache.h"
#include "router/queue_bounds.h"
#include "router/release_box.h"
#include "router/router_stats.h"
#include "router/variant_loader.h"

namespace deltad {

using Ticket = uint64_t;  // of a request; never reused

// What a model name stands for, before any load: enough to tokenize, render and check.
struct ModelHandle {
  std::string name;  // as registered
  bool is_base = false;
  std::shared_ptr<const TextAssets> text;  // the variant's own, else the base's
  CatalogEntryRef entry;                   // null for the base
};

struct RouterCoreOptions {
  std::string base_name;
  CacheOptions cache;
  int64_t max_waiting = 4096, max_waiting_per_variant = 1024;
};

struct RouterEffect {
  enum class Kind {
    kMeasure,   // entry's size: measured()
    kLoad,      // entry into tier, at most `bytes`; digest as measured: load_ended()
    kPromote,   // a copy of `variant` on the device: load_ended()
    kDemote,    // a copy of `variant` on the host: demoted()
    kFree,      // drop `variant`: freed()
    kDispatch,  // `request` to the engine: dispatched(); if refused, it ends with that error
    kEnd,       // call on_event with event
    kCancel,    // `handle`, in the engine
  };
  Kind kind = Kind::kMeasure;
  CatalogEntryRef entry;
  Tier tier = Tier::kDevice;
  int64_t bytes = 0;
  std::string digest;
  VariantRef variant;
  Ticket ticket = 0;
  Request request;
  std::function<void(const TokenEvent&)> on_event;
  TokenEvent event;
  RequestHandle handle = 0;
};

// A kFinished event.
TokenEvent ended_event(FinishReason reason, Status status);

class RouterCore {
 public:
  // policy null: the cache's own.
  RouterCore(const RouterCoreOptions& options, std::shared_ptr<const TextAssets> base_text,
             std::shared_ptr<ReleaseBox> releases, const Clock& clock,
             std::unique_ptr<EvictionPolicy> policy = nullptr);

  // Entries from Catalog::prepare. A request that waits for the replaced version goes over to the
  // new one, unless it was tokenized with another text: then it ends with kUnavailable. Requests
  // in flight end on the version they began with.
  Status add(CatalogEntryRef entry);
  // False: nothing was done, because what is served is the same to the byte.
  Result<bool> replace(CatalogEntryRef entry);
  Status remove(const std::string& name);
  // What the adapter pool serves from now on, in place of what it served before, all at once. For
  // each of its names the same holds as for a variant that is replaced or removed; a member that
  // stays is not loaded again.
  Status publish(const PoolListing& listing);
  Status reserve(const std::string& name) { return catalog_.reserve(name); }
  void release_name(const std::string& name) { catalog_.release(name); }
  // A variant under no name, for who holds the handle. Its requests are not counted among those
  // that wait. Closed as by remove().
  ModelHandle open_private(CatalogEntryRef entry);
  void close_private(const ModelHandle& model);
  Status pin(const std::string& name);
  // The entry of a variant whose size is not known yet, for measured_before(); null: it is known.
  Result<CatalogEntryRef> unmeasured(const std::string& name) const;
  void measured_before(const CatalogEntry& entry, const VariantSize& size);
  Status unpin(const std::string& name);
  Status prefetch(const std::string& name);
  Status evict(const std::string& name);
  // In place of the one that the name had; none if it limits nothing.
  Status set_limit(const std::string& name, const VariantLimit& limit);
  Status set_budget(Tier tier, int64_t bytes);
  void set_queue_bounds(int64_t total, int64_t per_variant) { bounds_.set(total, per_variant); }

  Result<ModelHandle> resolve(const std::string& model) const;
  struct Submitted {
    Ticket ticket = 0;
    std::optional<Request> ready;  // none: it waits. Else the caller hands it to the engine
  };
  Result<Submitted> submit(const ModelHandle& model, Request request);
  void cancel(Ticket ticket);
  void dispatched(Ticket ticket, const Result<RequestHandle>& handle);
  void started(Ticket ticket);  // its first token came
  // Its kFinished event came from the engine.
  void finished(Ticket ticket, int64_t output_tokens = 0);

  void measured(VariantId id, const Result<VariantSize>& size);
  void load_ended(VariantId id, Result<VariantRef> variant, double took);
  // The load found another file than the one that was measured. True: it is measured and loaded
  // anew, for those who wait; false: that has happened too often, or must not be, so load_ended()
  // is due.
  bool load_outdated(VariantId id);
  // Instead of a promotion: what lies on the disk is another version by now.
  void copy_outdated(VariantId id);
  void demoted(VariantId id, Result<VariantRef> copy);
  void freed(VariantId id, Tier tier);
  // Handles dropped since, deadlines, and what else time brings about. wake_time: when to call it.
  void tick();
  TimePoint wake_time() const;

  void refuse_new() { draining_ = true; }
  void end_waiting();  // all that wait end as cancelled
  void stop_loads();

  std::vector<RouterEffect> take_effects() { return std::exchange(effects_, {}); }

  size_t waiting() const { return waiting_; }  // for a variant
  size_t requests() const { return live_.size(); }
  Result<VariantInfo> variant(const std::string& name) const;
  std::vector<VariantInfo> variants() const;
  CacheTierInfo tier(Tier tier) const { return cache_.tier(tier); }
  const CacheStats& cache_stats() const { return cache_.stats(); }
  RouterStats stats() const;  // takes time in proportion to the catalog

 private:
  struct Live {
    CatalogEntryRef entry;              // null: the base
    std::string name;                   // that it was asked for by
    std::shared_ptr<QueueShare> share;  // of the name; null: the base, or none
    std::optional<Request> request;     // while it waits for its variant
    bool queued = true;                 // counted in the queue bounds
    RequestHandle handle = 0;           // once the engine gave one
    bool cancelled = false;
    TimePoint parked{};  // since when it waits for its variant
  };
  using LiveMap = std::unordered_map<Ticket, Live>;

  Result<CatalogName> find(const std::string& name) const;
  Result<CatalogName> current(const ModelHandle& model) const;
  void enter_cache(const CatalogEntryRef& entry);
  bool is_same(const CatalogEntry& old, const CatalogEntry& entry) const;
  Status cannot_load(const CatalogEntry& entry, const Status& why);  // counted
  void count(const Request& request, RequestLimiter& limiter) const;
  void unpark(LiveMap::iterator it);
  void leave_queue(Live& live, bool served);
  void end(Ticket ticket, FinishReason reason, Status status);
  void end_all(const CatalogEntryRef& entry, const Status& status);
  void end_these(const CatalogEntryRef& entry, const std::vector<Ticket>& tickets,
                 const Status& status);
  void leave_catalog(const CatalogEntryRef& entry);
  void follow(const std::string& name, const CatalogEntryRef& from, const CatalogEntryRef& to);
  VariantCounts& counts(const CatalogEntry& entry, const std::string& name);
  RouterEffect& effect(RouterEffect::Kind kind, const CatalogEntryRef& entry);
  void absorb();
  void perform(const CacheAction& action);
  void start_job(const CacheAction& action, const CatalogEntryRef& entry);
  VariantInfo info(const std::string& name, const CatalogName& named) const;

  const RouterCoreOptions options_;
  const std::shared_ptr<const TextAssets> base_text_;
  const std::shared_ptr<ReleaseBox> releases_;
  const Clock& clock_;
  const DecayedCount rate_;

  Catalog catalog_;
  DeltaCache cache_;
  QueueBounds bounds_;
  std::unordered_map<VariantId, CatalogEntryRef> by_id_;  // all that the cache knows
  std::vector<VariantId> retired_;                        // of these, no longer in the catalog
  LiveMap live_;
  std::set<std::pair<TimePoint, Ticket>> deadlines_;  // of those that wait
  size_t waiting_ = 0;
  Ticket last_ticket_ = 0;
  BoundedCounts<VariantCounts> counts_{kMostVariantSeries};
  Histogram load_seconds_{RouterStats::load_bounds()};
  Histogram promotion_seconds_{RouterStats::load_bounds()};
  Histogram parked_seconds_{RouterStats::load_bounds()};
  bool draining_ = false;
  std::vector<RouterEffect> effects_;
};

}  // namespace deltad
