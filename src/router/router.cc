#include "router/router.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "delta/variant_text.h"
#include "engine/memory_budget.h"
#include "router/bell.h"

namespace deltad {
namespace {

constexpr int64_t kAutomaticShare = 2;  // half of the memory that is left
constexpr int64_t kUnknownMemory = int64_t{1} << 30;
constexpr int64_t kAutomaticWaiting = 4096 + 256;  // what an engine takes by default
constexpr int64_t kAutomaticPerVariant = 4;        // a quarter of the total

// device_free: of the device where variants lie; nullopt: they lie in this machine's memory.
int64_t automatic_cache_bytes(std::optional<int64_t> device_free) {
  const int64_t left = device_free.value_or(available_memory());
  return (left > 0 ? left : kUnknownMemory) / kAutomaticShare;
}

int64_t total_bound(int64_t asked) { return asked > 0 ? asked : kAutomaticWaiting; }
int64_t variant_bound(int64_t asked, int64_t total) {
  return asked > 0 ? asked : std::max<int64_t>(1, total / kAutomaticPerVariant);
}

// Of the host, for variants that leave a device with so much for them. Bounded, as it is taken at
// the start, which waits for it.
int64_t automatic_host_bytes(int64_t device_bytes) {
  constexpr int64_t kShare = 8, kMost = int64_t{64} << 30;
  const int64_t left = available_memory();
  return std::min({device_bytes, (left > 0 ? left : kUnknownMemory) / kShare, kMost});
}

// What the store really took. An automatic size that the machine does not grant is none.
Result<int64_t> reserve_host(WeightStore& store, const RouterOptions& options) {
  if (!store.device_free_bytes()) return int64_t{0};  // variants lie in the host's memory anyway
  const bool automatic = options.host_bytes == kAutomaticBytes;
  const int64_t wanted = automatic ? automatic_host_bytes(options.cache_bytes) : options.host_bytes;
  if (wanted <= 0) return int64_t{0};
  const TimePoint start = Clock::real().now();
  const Result<size_t> taken = store.reserve_host(static_cast<size_t>(wanted));
  constexpr int64_t kRounding = 1 << 20;  // whole pages of each rank
  if (!taken.ok() && !automatic) return taken.status().in("variant_cache.host_memory");
  if (!automatic && static_cast<int64_t>(*taken) + kRounding < wanted)
    return resource_exhausted(
        fmt::format("variant_cache.host_memory: {} bytes of {} could be taken", *taken, wanted));
  if (!taken.ok()) {
    log_warning("variants that leave the device will be read again: {}", taken.status().message());
    return int64_t{0};
  }
  log_info("host memory for variants that leave the device: {:.1f} MiB, taken in {:.1f} s",
           static_cast<double>(*taken) / (1 << 20), seconds(Clock::real().now() - start));
  return static_cast<int64_t>(*taken);
}

RouterCoreOptions core_options(const RouterOptions& options, const VariantLoader& loader) {
  RouterCoreOptions out;
  out.base_name = options.base_name;
  out.cache.device_bytes =
      options.cache_bytes > 0 ? options.cache_bytes : automatic_cache_bytes(std::nullopt);
  out.cache.host_bytes = std::max<int64_t>(0, options.host_bytes);
  out.cache.loads_to_host = loader.loads_to_host();
  out.cache.half_life_seconds = options.half_life_seconds;
  out.cache.age_bound_seconds = options.age_bound_seconds;
  out.cache.retry_seconds = options.retry_seconds;
  out.cache.max_loads = std::max(1, options.loader_threads);
  out.max_waiting = total_bound(options.max_waiting);
  out.max_waiting_per_variant = variant_bound(options.max_waiting_per_variant, out.max_waiting);
  return out;
}

class RouterImpl final : public Router {
 public:
  RouterImpl(const RouterOptions& options, std::shared_ptr<const TextAssets> base_text,
             std::unique_ptr<VariantLoader> loader, Engine& engine)
      : base_name_(options.base_name),
        base_text_(std::move(base_text)),
        loader_(std::move(loader)),
        engine_(engine),
        bell_(std::make_shared<Bell>()),
        core_(core_options(options, *loader_), base_text_,
              std::make_shared<ReleaseBox>([bell = bell_] { bell->ring(); }), Clock::real()) {
    for (int i = 0; i < std::max(1, options.loader_threads); ++i)
      loaders_.emplace_back([this] { load_loop(kLoads); });
    // Headers are read beside the loads: who asks for a broken variant hears of it at once.
    loaders_.emplace_back([this] { load_loop(kMeasures); });
    // So is what leaves the device for the host or comes back: it takes no time beside a load.
    if (options.host_bytes > 0) loaders_.emplace_back([this] { load_loop(kCopies); });
    service_ = std::thread([this] { service_loop(); });
  }

  ~RouterImpl() override { shutdown(Clock::real().now()); }

  Result<ModelHandle> resolve(const std::string& model) override {
    MutexLock lock(mutex_);
    return core_.resolve(model);
  }

  Result<Ticket> submit(const ModelHandle& model, Request request) override {
    // What can never run is not worth a load.
    if (!model.is_base) RETURN_IF_ERROR(engine_.check(request));
    Result<RouterCore::Submitted> submitted =
        change([&](RouterCore& core) { return core.submit(model, std::move(request)); });
    if (!submitted.ok()) return submitted.status();
    if (submitted->ready)
      RETURN_IF_ERROR(dispatch(submitted->ticket, std::move(*submitted->ready)));
    return submitted->ticket;
  }

  void cancel(Ticket ticket) override {
    change([&](RouterCore& core) { core.cancel(ticket); });
  }

  Status add(const VariantSource& source) override {
    ASSIGN_OR_RETURN(CatalogEntryRef entry, checked(source));
    return change([&](RouterCore& core) { return core.add(std::move(entry)); });
  }
  Status replace(const VariantSource& source) override {
    ASSIGN_OR_RETURN(CatalogEntryRef entry, checked(source));
    // What works does not make way for what turns out to be damaged when it is first asked for.
    const Result<std::string> digest = loader_->verify(source.path, stop_verifying_);
    if (!digest.ok()) return digest.status().in(fmt::format("variant '{}'", source.name));
    if (!digest->empty()) entry->digest = *digest;
    const Result<bool> replaced =
        change([&](RouterCore& core) { return core.replace(std::move(entry)); });
    if (replaced.ok())
      log_info("variant {} {}: {}", source.name,
               *replaced ? "replaced" : "stays, its content is the same", source.path);
    return replaced.status();
  }
  Status remove(const std::string& name) override {
    return change([&](RouterCore& core) { return core.remove(name); });
  }
  Status pin(const std::string& name) override {
    RETURN_IF_ERROR(measure(name));  // else nobody can say whether it fits
    return change([&](RouterCore& core) { return core.pin(name); });
  }
  Status unpin(const std::string& name) override {
    return change([&](RouterCore& core) { return core.unpin(name); });
  }
  Status prefetch(const std::string& name) override {
    return change([&](RouterCore& core) { return core.prefetch(name); });
  }
  Status evict(const std::string& name) override {
    return change([&](RouterCore& core) { return core.evict(name); });
  }
  Status set_limit(const std::string& name, const VariantLimit& limit) override {
    return change([&](RouterCore& core) { return core.set_limit(name, limit); });
  }
  Status publish(const Publication& publication) override {
    PoolListing listing;
    listing.names = publication.names;
    for (const VariantSource& member : publication.members) {
      ASSIGN_OR_RETURN(CatalogEntryRef entry, checked(member));
      listing.members.push_back(std::move(entry));
    }
    return change([&](RouterCore& core) { return core.publish(listing); });
  }
  Status reserve(const std::string& name) override {
    return change([&](RouterCore& core) { return core.reserve(name); });
  }
  void release_name(const std::string& name) override {
    change([&](RouterCore& core) { core.release_name(name); });
  }
  Result<ModelHandle> open_private(const VariantSource& source) override {
    ASSIGN_OR_RETURN(CatalogEntryRef entry, checked(source));
    return change(
        [&](RouterCore& core) { return Result<ModelHandle>(core.open_private(std::move(entry))); });
  }
  void close_private(const ModelHandle& model) override {
    change([&](RouterCore& core) { core.close_private(model); });
  }
  Status set_cache_bytes(int64_t bytes) override {
    if (bytes < 1)
      return invalid_argument(fmt::format("a cache of {} bytes: expected a number above 0", bytes));
    return change([&](RouterCore& core) { return core.set_budget(Tier::kDevice, bytes); });
  }

  void set_queue_bounds(int64_t total, int64_t per_variant) override {
    const int64_t all = total_bound(total);
    change([&](RouterCore& core) { core.set_queue_bounds(all, variant_bound(per_variant, all)); });
  }
  void set_load_rate(int64_t bytes_per_second) override { loader_->set_rate(bytes_per_second); }

  // Without checks beyond those of the config: a broken variant fails only its own requests.
  Status add_unchecked(const VariantSource& source) {
    ASSIGN_OR_RETURN(CatalogEntryRef entry,
                     Catalog::prepare_configured(base_name_, source, base_text_));
    return change([&](RouterCore& core) { return core.add(std::move(entry)); });
  }

  void shutdown(TimePoint deadline) override {
    stop_verifying_ = true;
    Effects effects;
    {
      MutexLock lock(mutex_);
      core_.refuse_new();
      while (core_.waiting() > 0 && changed_.wait_until(mutex_, deadline)) {
      }
      core_.end_waiting();
      effects = collect();
      stopping_ = true;
      core_.stop_loads();
      changed_.notify_all();
    }
    bell_->ring();
    perform(std::move(effects));
    for (std::thread& thread : loaders_) thread.join();
    loaders_.clear();
    if (service_.joinable()) service_.join();
    engine_.shutdown(deadline);
  }

  Result<VariantInfo> variant(const std::string& name) const override {
    MutexLock lock(mutex_);
    return core_.variant(name);
  }

  std::vector<VariantInfo> variants() const override {
    MutexLock lock(mutex_);
    return core_.variants();
  }

  RouterStats stats() const override {
    MutexLock lock(mutex_);
    return core_.stats();
  }

  CacheTierInfo cache_tier(Tier tier) const override {
    MutexLock lock(mutex_);
    return core_.tier(tier);
  }

  const std::string& base_name() const override { return base_name_; }

 private:
  using Effects = std::vector<RouterEffect>;
  using Kind = RouterEffect::Kind;

  // Lets the core change, and carries out what follows. Returns what `change` returns.
  template <typename Change>
  std::invoke_result_t<Change, RouterCore&> change(Change change) EXCLUDES(mutex_) {
    Effects effects;
    if constexpr (std::is_void_v<std::invoke_result_t<Change, RouterCore&>>) {
      {
        MutexLock lock(mutex_);
        change(core_);
        effects = collect();
      }
      perform(std::move(effects));
    } else {
      auto result = [&] {
        MutexLock lock(mutex_);
        auto out = change(core_);
        effects = collect();
        return out;
      }();
      perform(std::move(effects));
      return result;
    }
  }

  Result<CatalogEntryRef> checked(const VariantSource& source) {
    ASSIGN_OR_RETURN(CatalogEntryRef entry, Catalog::prepare(base_name_, source, base_text_));
    const Result<VariantSize> size = loader_->measure(source.path);
    if (!size.ok()) return size.status().in(fmt::format("variant '{}'", source.name));
    entry->digest = size->digest;
    entry->bytes = size->bytes;
    return entry;
  }

  // Makes the size of a variant known that was not asked for yet.
  Status measure(const std::string& name) {
    CatalogEntryRef entry;
    {
      MutexLock lock(mutex_);
      ASSIGN_OR_RETURN(entry, core_.unmeasured(name));
    }
    if (!entry) return Status();
    RETURN_IF_ERROR(entry->broken);
    const Result<VariantSize> size = loader_->measure(entry->path);
    if (!size.ok()) return size.status().in(fmt::format("variant '{}'", name));
    change([&](RouterCore& core) { core.measured_before(*entry, *size); });
    return Status();
  }

  // Takes the core's effects: hands out those of other threads, returns the rest for perform().
  Effects collect() REQUIRES(mutex_) {
    Effects own;
    for (RouterEffect& effect : core_.take_effects()) {
      if (effect.kind == Kind::kFree)
        to_free_.push_back(std::move(effect));
      else if (effect.kind == Kind::kDispatch || effect.kind == Kind::kEnd ||
               effect.kind == Kind::kCancel)
        own.push_back(std::move(effect));
      else
        jobs_[worker_of(effect.kind)].push_back(std::move(effect));
    }
    const bool work =
        std::any_of(jobs_.begin(), jobs_.end(), [](const auto& j) { return !j.empty(); });
    if (work || !own.empty()) changed_.notify_all();
    if (!to_free_.empty() || core_.wake_time() < service_wakes_) bell_->ring();
    return own;
  }

  void perform(Effects effects) EXCLUDES(mutex_) {
    for (RouterEffect& effect : effects) {
      if (effect.kind == Kind::kEnd) {
        effect.on_event(effect.event);
      } else if (effect.kind == Kind::kCancel) {
        engine_.cancel(effect.handle);
      } else {
        const auto on_event = effect.request.on_event;
        const Status status = dispatch(effect.ticket, std::move(effect.request));
        if (!status.ok()) on_event(ended_event(FinishReason::kError, status));
      }
    }
  }

  // Hands a request to the engine; from then on its ticket stands for the engine's handle until it
  // has finished.
  Status dispatch(Ticket ticket, Request request) EXCLUDES(mutex_) {
    request.on_event = [this, ticket, begun = false,
                        inner = std::move(request.on_event)](const TokenEvent& event) mutable {
      if (event.kind == TokenEvent::Kind::kFinished) {
        MutexLock lock(mutex_);
        core_.finished(ticket, event.output_tokens);
      } else if (!begun) {
        begun = true;
        MutexLock lock(mutex_);
        core_.started(ticket);
      }
      inner(event);
    };
    const Result<RequestHandle> handle = engine_.submit(std::move(request));
    change([&](RouterCore& core) { core.dispatched(ticket, handle); });
    return handle.status();
  }

  // What a loader thread does.
  enum Worker : size_t { kLoads, kMeasures, kCopies, kWorkers };
  static Worker worker_of(Kind kind) {
    if (kind == Kind::kMeasure) return kMeasures;
    return kind == Kind::kLoad ? kLoads : kCopies;
  }

  void load_loop(Worker worker) EXCLUDES(mutex_) {
    for (;;) {
      RouterEffect job;
      {
        MutexLock lock(mutex_);
        std::deque<RouterEffect>& jobs = jobs_[worker];
        while (jobs.empty() && !stopping_) changed_.wait(mutex_);
        if (stopping_) return;
        job = std::move(jobs.front());
        jobs.pop_front();
      }
      run(std::move(job));
    }
  }

  void run(RouterEffect job) EXCLUDES(mutex_) {
    const VariantId id = job.entry->id;
    if (job.kind == Kind::kMeasure) {
      const Status& broken = job.entry->broken;
      const Result<VariantSize> size =
          broken.ok() ? loader_->measure(job.entry->path) : Result<VariantSize>(broken);
      if (!size.ok())
        log_error("variant '{}' cannot be loaded: {}", job.entry->name, size.status().message());
      change([&](RouterCore& core) { core.measured(id, size); });
      return;
    }
    if (job.kind == Kind::kPromote && !loader_->is_current(*job.variant)) {
      log_info("variant {}: {} has changed since it was read; it is read anew", job.entry->name,
               job.entry->path);
      job.variant.reset();
      change([&](RouterCore& core) { core.copy_outdated(id); });
      return;
    }
    const TimePoint start = Clock::real().now();
    bool outdated = false;
    Result<VariantRef> made = job.kind == Kind::kLoad
                                  ? load(job, &outdated)
                                  : loader_->copy(job.variant, job.tier, job.entry->cancel_load);
    job.variant.reset();
    const double took = seconds(Clock::real().now() - start);
    if (outdated && change([&](RouterCore& core) { return core.load_outdated(id); })) {
      log_info("variant {} is measured anew: {}", job.entry->name, made.status().message());
      return;
    }
    if (made.ok())
      log_info("variant {} {}: {:.1f} MiB in {:.0f} ms", job.entry->name,
               job.kind == Kind::kLoad      ? "loaded"
               : job.kind == Kind::kPromote ? "copied to the device"
                                            : "copied to the host",
               static_cast<double>((*made)->bytes) / (1 << 20), took * 1e3);
    else if (job.kind == Kind::kDemote)
      log_warning("variant '{}' leaves memory without a copy on the host: {}", job.entry->name,
                  made.status().message());
    else if (made.status().code() == Code::kCancelled)
      log_info("variant {}: its load was stopped after {:.0f} ms", job.entry->name, took * 1e3);
    else
      log_error("variant '{}' cannot be loaded: {}", job.entry->name, made.status().message());
    change([&](RouterCore& core) {
      if (job.kind == Kind::kDemote)
        core.demoted(id, std::move(made));
      else
        core.load_ended(id, std::move(made), took);
    });
  }

  // What came must be what was measured. outdated: the file had become another one before it was
  // read.
  Result<VariantRef> load(const RouterEffect& job, bool* outdated) {
    const CatalogEntry& entry = *job.entry;
    if (entry.cancel_load) return cancelled("nobody waits for it any more");
    const auto load = entry.listed ? &VariantLoader::load : &VariantLoader::load_behind_others;
    Result<VariantRef> loaded =
        ((*loader_).*load)(entry.name, entry.path, job.tier, job.bytes, entry.cancel_load);
    if (!loaded.ok()) {
      *outdated = loaded.status().code() == Code::kResourceExhausted && is_larger(job);
      return loaded;
    }
    const Variant& variant = **loaded;
    if (!job.digest.empty() && variant.digest != job.digest) {
      *outdated = true;
      return unavailable(
          fmt::format("{} has changed since its header was read: its digest was {}, and is {}",
                      entry.path, job.digest, variant.digest));
    }
    if (static_cast<int64_t>(variant.bytes) > job.bytes)
      return internal_error(fmt::format("{} takes {} bytes, but only {} were set aside", entry.path,
                                        variant.bytes, job.bytes));
    // A folder may have become another version's since it was registered: its weights must not
    // meet the text of this one.
    ASSIGN_OR_RETURN(const std::string text, variant_text_digest(entry.path));
    if (text != entry.text_digest)
      return unavailable(fmt::format(
          "the text files of {} have changed since it was registered: replace it", entry.path));
    return loaded;
  }

  // Than was set aside for it.
  bool is_larger(const RouterEffect& job) {
    const Result<VariantSize> size = loader_->measure(job.entry->path);
    return size.ok() && size->bytes > job.bytes;
  }

  void service_loop() EXCLUDES(mutex_) {
    for (;;) {
      std::deque<RouterEffect> frees;
      Effects effects;
      TimePoint wake;
      {
        MutexLock lock(mutex_);
        if (stopping_) return;
        core_.tick();
        effects = collect();
        frees.swap(to_free_);
        wake = service_wakes_ = core_.wake_time();
      }
      perform(std::move(effects));
      for (RouterEffect& free : frees) {
        free.variant.reset();
        change([&](RouterCore& core) { core.freed(free.entry->id, free.tier); });
      }
      if (frees.empty()) bell_->wait_until(wake);
    }
  }

  const std::string base_name_;
  const std::shared_ptr<const TextAssets> base_text_;
  const std::unique_ptr<VariantLoader> loader_;
  Engine& engine_;
  const std::shared_ptr<Bell> bell_;  // wakes the service thread
  std::atomic<bool> stop_verifying_{false};

  mutable Mutex mutex_;
  CondVar changed_;  // jobs_, requests waiting, or stopping_
  RouterCore core_ GUARDED_BY(mutex_);
  std::array<std::deque<RouterEffect>, kWorkers> jobs_ GUARDED_BY(mutex_);  // of loader threads
  std::deque<RouterEffect> to_free_ GUARDED_BY(mutex_);                     // of the service thread
  TimePoint service_wakes_ GUARDED_BY(mutex_) = TimePoint::max();
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> loaders_;
  std::thread service_;
};

}  // namespace

Result<std::unique_ptr<Router>> Router::make(const RouterOptions& options,
                                             const std::vector<VariantSource>& variants,
                                             std::shared_ptr<const TextAssets> base_text,
                                             std::unique_ptr<VariantLoader> loader,
                                             Engine& engine) {
  auto router =
      std::make_unique<RouterImpl>(options, std::move(base_text), std::move(loader), engine);
  for (const VariantSource& source : variants) RETURN_IF_ERROR(router->add_unchecked(source));
  return std::unique_ptr<Router>(std::move(router));
}

Result<std::unique_ptr<Router>> Router::make(const RouterOptions& options,
                                             const std::vector<VariantSource>& variants,
                                             std::shared_ptr<const TextAssets> base_text,
                                             const WeightTable& table, WeightStore& store,
                                             Engine& engine) {
  RouterOptions sized = options;
  if (sized.cache_bytes == 0) sized.cache_bytes = automatic_cache_bytes(store.device_free_bytes());
  ASSIGN_OR_RETURN(sized.host_bytes, reserve_host(store, sized));
  return make(sized, variants, std::move(base_text),
              files_loader(table, store,
                           {options.base_digest, options.architecture, options.bytes_per_second}),
              engine);
}

}  // namespace deltad
