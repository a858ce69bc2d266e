#include "router/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "delta/loader.h"

namespace deltad {
namespace {

constexpr double kLongestBackOff = 60;  // seconds

TokenEvent ended(FinishReason reason, Status status) {
  TokenEvent event;
  event.kind = TokenEvent::Kind::kFinished;
  event.reason = reason;
  event.status = std::move(status);
  return event;
}

class RouterImpl final : public Router {
 public:
  RouterImpl(const RouterOptions& options, Catalog catalog,
             std::shared_ptr<const TextAssets> base_text, const WeightTable& table,
             Backend& backend, Engine& engine)
      : options_(options),
        base_text_(std::move(base_text)),
        table_(table),
        backend_(backend),
        engine_(engine),
        catalog_(std::move(catalog)) {
    for (int i = 0; i < std::max(1, options_.loader_threads); ++i)
      loaders_.emplace_back([this] { load_loop(); });
  }

  ~RouterImpl() override { shutdown(Clock::real().now()); }

  Result<ModelHandle> resolve(const std::string& model) override {
    if (model.empty() || model == options_.base_name)
      return ModelHandle{options_.base_name, true, base_text_, nullptr};
    const auto entry = catalog_.find(model);
    if (!entry) return catalog_.unknown(model);
    return ModelHandle{entry->name, false, entry->text, entry};
  }

  Result<Ticket> submit(const ModelHandle& model, Request request) override {
    const Ticket ticket = next_ticket_.fetch_add(1);
    if (!model.is_base) {
      RETURN_IF_ERROR(engine_.check(request));  // what can never run is not worth a load
      MutexLock lock(mutex_);
      if (draining_) return unavailable("the server is shutting down");
      CatalogEntry& entry = *model.entry;
      if (entry.state != VariantState::kResident) {
        RETURN_IF_ERROR(start_load(model.entry));
        parked_.emplace(ticket, Parked{model.entry, std::move(request)});
        return ticket;
      }
      request.variant = entry.variant;
    }
    RETURN_IF_ERROR(dispatch(ticket, std::move(request)));
    return ticket;
  }

  void cancel(Ticket ticket) override {
    std::function<void(const TokenEvent&)> on_event;
    RequestHandle handle = 0;
    {
      MutexLock lock(mutex_);
      if (const auto it = parked_.find(ticket); it != parked_.end()) {
        on_event = std::move(it->second.request.on_event);
        parked_.erase(it);
        changed_.notify_all();
      } else if (const auto run = running_.find(ticket); run != running_.end()) {
        run->second.cancelled = true;
        handle = run->second.handle;
      }
    }
    if (on_event) on_event(ended(FinishReason::kCancelled, Status()));
    if (handle != 0) engine_.cancel(handle);
  }

  void shutdown(TimePoint deadline) override {
    std::map<Ticket, Parked> left;
    {
      MutexLock lock(mutex_);
      draining_ = true;
      while (!parked_.empty() && changed_.wait_until(mutex_, deadline)) {
      }
      left.swap(parked_);
      stopping_ = true;
      cancel_loads_ = true;
      changed_.notify_all();
    }
    for (auto& [ticket, parked] : left)
      parked.request.on_event(ended(FinishReason::kCancelled, Status()));
    for (std::thread& loader : loaders_) loader.join();
    loaders_.clear();
    engine_.shutdown(deadline);
  }

  std::vector<VariantInfo> variants() const override {
    std::vector<VariantInfo> out;
    MutexLock lock(mutex_);
    for (const auto& [name, entry] : catalog_.entries()) {
      VariantInfo info{name,
                       entry->path,
                       "",
                       entry->state,
                       0,
                       entry->error.message(),
                       entry->loads,
                       entry->load_seconds,
                       entry->created};
      if (entry->variant) {
        info.digest = entry->variant->digest;
        info.bytes = entry->variant->bytes;
      }
      out.push_back(std::move(info));
    }
    return out;
  }

  const std::string& base_name() const override { return options_.base_name; }

 private:
  struct Parked {
    std::shared_ptr<CatalogEntry> entry;
    Request request;
  };
  struct Running {
    RequestHandle handle = 0;  // 0 until the engine gave one
    bool cancelled = false;
  };

  // Makes sure a load of the entry is under way, or says why none is.
  Status start_load(const std::shared_ptr<CatalogEntry>& entry) REQUIRES(mutex_) {
    if (static_cast<int64_t>(parked_.size()) >= options_.max_parked)
      return resource_exhausted(
          fmt::format("{} requests wait for variants to load already", parked_.size()));
    if (entry->state == VariantState::kLoading) return Status();
    if (entry->state == VariantState::kFailed && Clock::real().now() < entry->next_try)
      return unavailable(entry->error.message());
    entry->state = VariantState::kLoading;
    to_load_.push_back(entry);
    changed_.notify_all();
    return Status();
  }

  // Hands a request to the engine; from then on its ticket stands for the engine's handle until it
  // has finished.
  Status dispatch(Ticket ticket, Request request) EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      if (stopping_) return unavailable("the server is shutting down");
      running_.emplace(ticket, Running{});
    }
    request.on_event = [this, ticket,
                        inner = std::move(request.on_event)](const TokenEvent& event) {
      if (event.kind == TokenEvent::Kind::kFinished) {
        MutexLock lock(mutex_);
        running_.erase(ticket);
      }
      inner(event);
    };
    const Result<RequestHandle> handle = engine_.submit(std::move(request));
    bool cancel_now = false;
    {
      MutexLock lock(mutex_);
      if (!handle.ok()) {
        running_.erase(ticket);
        return handle.status();
      }
      if (const auto it = running_.find(ticket); it != running_.end()) {
        it->second.handle = *handle;
        cancel_now = it->second.cancelled;
      }
    }
    if (cancel_now) engine_.cancel(*handle);
    return Status();
  }

  void load_loop() EXCLUDES(mutex_) {
    for (;;) {
      std::shared_ptr<CatalogEntry> entry;
      {
        MutexLock lock(mutex_);
        while (to_load_.empty() && !stopping_) changed_.wait(mutex_);
        if (stopping_) return;
        entry = std::move(to_load_.front());
        to_load_.pop_front();
      }
      load(entry);
    }
  }

  void load(const std::shared_ptr<CatalogEntry>& entry) EXCLUDES(mutex_) {
    const TimePoint start = Clock::real().now();
    VariantLoadOptions options;
    options.base_digest = options_.base_digest;
    options.architecture = options_.architecture;
    options.cancelled = &cancel_loads_;
    const Result<VariantRef> loaded =
        load_variant(entry->name, entry->path, table_, backend_, options);
    const double took = seconds(Clock::real().now() - start);

    std::vector<std::pair<Ticket, Request>> waiters;
    Status error;
    {
      MutexLock lock(mutex_);
      if (loaded.ok()) {
        entry->state = VariantState::kResident;
        entry->variant = *loaded;
        entry->error = Status();
        entry->back_off = 0;
        entry->loads += 1;
        entry->load_seconds = took;
      } else {
        error = unavailable(fmt::format("variant '{}' cannot be loaded: {}", entry->name,
                                        loaded.status().message()));
        entry->state = VariantState::kFailed;
        entry->error = error;
        entry->back_off = entry->back_off == 0 ? options_.retry_seconds
                                               : std::min(2 * entry->back_off, kLongestBackOff);
        entry->next_try = Clock::real().now() + std::chrono::duration_cast<Duration>(
                                                    std::chrono::duration<double>(entry->back_off));
      }
      for (auto it = parked_.begin(); it != parked_.end();) {
        if (it->second.entry != entry) {
          ++it;
          continue;
        }
        waiters.emplace_back(it->first, std::move(it->second.request));
        it = parked_.erase(it);
      }
    }
    if (loaded.ok()) {
      log_info("variant {} loaded: {:.1f} MiB in {:.0f} ms", entry->name,
               static_cast<double>((*loaded)->bytes) / (1 << 20), took * 1e3);
    } else {
      log_error("{}", error.message());
    }
    for (auto& [ticket, request] : waiters)
      release(ticket, std::move(request), loaded.ok() ? *loaded : nullptr, error);
    MutexLock lock(mutex_);
    changed_.notify_all();
  }

  // A waiter goes on to the engine, or ends with the reason why it cannot.
  void release(Ticket ticket, Request request, VariantRef variant, Status error) EXCLUDES(mutex_) {
    const auto on_event = request.on_event;
    if (variant) {
      request.variant = std::move(variant);
      error = dispatch(ticket, std::move(request));
    }
    if (!error.ok()) on_event(ended(FinishReason::kError, std::move(error)));
  }

  const RouterOptions options_;
  const std::shared_ptr<const TextAssets> base_text_;
  const WeightTable& table_;
  Backend& backend_;
  Engine& engine_;
  const Catalog catalog_;  // the entries' state is guarded by mutex_

  std::atomic<Ticket> next_ticket_{1};
  std::atomic<bool> cancel_loads_{false};
  mutable Mutex mutex_;
  CondVar changed_;  // to_load_, parked_ or stopping_
  std::deque<std::shared_ptr<CatalogEntry>> to_load_ GUARDED_BY(mutex_);
  std::map<Ticket, Parked> parked_ GUARDED_BY(mutex_);  // in order of arrival
  std::map<Ticket, Running> running_ GUARDED_BY(mutex_);
  bool draining_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> loaders_;
};

}  // namespace

Result<std::unique_ptr<Router>> Router::make(const RouterOptions& options,
                                             const std::vector<VariantSource>& variants,
                                             std::shared_ptr<const TextAssets> base_text,
                                             const WeightTable& table, Backend& backend,
                                             Engine& engine) {
  auto catalog = Catalog::make(options.base_name, variants, base_text);
  if (!catalog.ok()) return catalog.status();
  return std::unique_ptr<Router>(
      new RouterImpl(options, std::move(*catalog), std::move(base_text), table, backend, engine));
}

}  // namespace deltad
