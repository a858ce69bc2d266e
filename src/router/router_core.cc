#include "router/router_core.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/log.h"

namespace deltad {
namespace {

// A file that is another one at every load ends in an error, not in loads for ever.
constexpr int kMostOutdated = 3;

}  // namespace

TokenEvent ended_event(FinishReason reason, Status status) {
  TokenEvent event;
  event.kind = TokenEvent::Kind::kFinished;
  event.reason = reason;
  event.status = std::move(status);
  return event;
}

RouterCore::RouterCore(const RouterCoreOptions& options,
                       std::shared_ptr<const TextAssets> base_text,
                       std::shared_ptr<ReleaseBox> releases, const Clock& clock,
                       std::unique_ptr<EvictionPolicy> policy)
    : options_(options),
      base_text_(std::move(base_text)),
      releases_(std::move(releases)),
      clock_(clock),
      rate_(options.cache.half_life_seconds),
      catalog_(options.base_name),
      cache_(options.cache, clock, std::move(policy)),
      bounds_(options.max_waiting, options.max_waiting_per_variant) {}

Result<CatalogName> RouterCore::find(const std::string& name) const {
  if (const CatalogName* named = catalog_.find(name)) return *named;
  return catalog_.unknown(name);
}

void RouterCore::enter_cache(const CatalogEntryRef& entry) {
  entry->id = cache_.add(entry->name);
  by_id_[entry->id] = entry;
  if (entry->bytes >= 0) cache_.measured_before(entry->id, entry->bytes, entry->digest);
  if (entry->listed) counts_.offer(entry->name);
}

// Of a request for the name, or of the entry's own.
VariantCounts& RouterCore::counts(const CatalogEntry& entry, const std::string& name) {
  return entry.listed ? counts_.of(name) : counts_.others();
}

// The caller has seen to those that wait for it.
void RouterCore::leave_catalog(const CatalogEntryRef& entry) {
  entry->current = false;
  cache_.retire(entry->id);
  retired_.push_back(entry->id);
}

Status RouterCore::add(CatalogEntryRef entry) {
  RETURN_IF_ERROR(catalog_.insert(entry));
  enter_cache(entry);
  return Status();
}

bool RouterCore::is_same(const CatalogEntry& old, const CatalogEntry& entry) const {
  return !entry.digest.empty() && old.digest == entry.digest && old.path == entry.path &&
         old.text_digest == entry.text_digest && old.broken.ok() && cache_.info(old.id).error.ok();
}

Result<bool> RouterCore::replace(CatalogEntryRef entry) {
  const CatalogName* here = catalog_.find(entry->name);
  if (here != nullptr && !here->entry->pooled && is_same(*here->entry, *entry)) {
    if (entry->limit.any()) here->share->limiter.emplace(entry->limit);
    return false;
  }
  ASSIGN_OR_RETURN(const CatalogEntryRef old, catalog_.replace(entry));
  enter_cache(entry);
  if (old->text != entry->text)
    end_all(old,
            unavailable(fmt::format(
                "variant '{}' was replaced while the request waited: send it again", old->name)));
  for (const Ticket ticket : old->parked) live_.at(ticket).entry = entry;
  entry->parked.swap(old->parked);
  cache_.succeed(old->id, entry->id);
  leave_catalog(old);
  absorb();
  return true;
}

Status RouterCore::remove(const std::string& name) {
  ASSIGN_OR_RETURN(const CatalogEntryRef old, catalog_.remove(name));
  counts_.forget(name);
  end_all(old, not_found(fmt::format("variant '{}' was removed while the request waited", name)));
  leave_catalog(old);
  absorb();
  return Status();
}

Status RouterCore::pin(const std::string& name) {
  ASSIGN_OR_RETURN(const CatalogName named, find(name));
  const Status status = cache_.pin(named.entry->id);
  absorb();
  return status;
}

Result<CatalogEntryRef> RouterCore::unmeasured(const std::string& name) const {
  ASSIGN_OR_RETURN(const CatalogName named, find(name));
  return cache_.info(named.entry->id).bytes < 0 ? named.entry : nullptr;
}

void RouterCore::measured_before(const CatalogEntry& entry, const VariantSize& size) {
  if (!entry.current) return;
  cache_.measured_before(entry.id, size.bytes, size.digest);
  absorb();
}

Status RouterCore::unpin(const std::string& name) {
  ASSIGN_OR_RETURN(const CatalogName named, find(name));
  cache_.unpin(named.entry->id);
  absorb();
  return Status();
}

Status RouterCore::prefetch(const std::string& name) {
  ASSIGN_OR_RETURN(const CatalogName named, find(name));
  const Status status = cache_.prefetch(named.entry->id);
  absorb();
  return status;
}

Status RouterCore::evict(const std::string& name) {
  ASSIGN_OR_RETURN(const CatalogName named, find(name));
  const Status status = cache_.evict(named.entry->id);
  absorb();
  return status;
}

Status RouterCore::set_limit(const std::string& name, const VariantLimit& limit) {
  ASSIGN_OR_RETURN(const CatalogName named, find(name));
  named.share->limiter.reset();
  if (limit.any()) named.share->limiter.emplace(limit);
  return Status();
}

Status RouterCore::set_budget(Tier tier, int64_t bytes) {
  const Status status = cache_.set_budget(tier, bytes);
  absorb();
  return status;
}

Result<ModelHandle> RouterCore::resolve(const std::string& model) const {
  if (model.empty() || model == options_.base_name)
    return ModelHandle{options_.base_name, true, base_text_, nullptr};
  ASSIGN_OR_RETURN(const CatalogName named, find(model));
  return ModelHandle{model, false, named.entry->text, named.entry};
}

// What a request resolved a moment ago goes to: maybe a newer version by now.
Result<CatalogName> RouterCore::current(const ModelHandle& model) const {
  if (!model.entry->listed) {
    if (!model.entry->current) return not_found(fmt::format("'{}' was closed", model.name));
    return CatalogName{model.entry, nullptr};
  }
  ASSIGN_OR_RETURN(const CatalogName named, find(model.name));
  if (named.entry->text != model.text)
    return unavailable(
        fmt::format("variant '{}' was replaced a moment ago: send the request again", model.name));
  return named;
}

Result<RouterCore::Submitted> RouterCore::submit(const ModelHandle& model, Request request) {
  if (draining_) return unavailable("the server is shutting down");
  CatalogName named;
  if (!model.is_base) {
    ASSIGN_OR_RETURN(named, current(model));
  }
  const CatalogEntryRef& entry = named.entry;
  const TimePoint now = clock_.now();
  // All choices of a request are one of those that wait.
  const bool queues = !request.follows && (!entry || entry->listed);
  RequestLimiter* limiter = named.share && named.share->limiter ? &*named.share->limiter : nullptr;
  if (limiter != nullptr && !request.follows) {
    if (Status limited = limiter->check(model.name, now); !limited.ok()) {
      ++counts(*entry, model.name).limited;
      return limited;
    }
  }
  if (queues) RETURN_IF_ERROR(bounds_.enter(named.share.get(), model.name, now));
  const Ticket ticket = ++last_ticket_;
  Live& live = live_[ticket];
  live.entry = entry;
  live.share = named.share;
  live.queued = queues;
  if (!entry) return Submitted{ticket, std::move(request)};

  const Result<bool> admitted = cache_.want(entry->id);
  if (!admitted.ok()) {
    leave_queue(live, false);
    live_.erase(ticket);
    absorb();
    return admitted.status();
  }
  if (limiter != nullptr) count(request, *limiter);
  Submitted out{ticket, std::nullopt};
  VariantCounts& counted = counts(*entry, model.name);
  if (*admitted) {
    request.variant = ReleaseBox::handle(releases_, entry->device, entry->id);
    out.ready = std::move(request);
  } else {
    entry->parked.insert(ticket);
    ++waiting_;
    ++counted.misses;
    live.name = model.name;
    live.parked = now;
    if (request.deadline != TimePoint::max()) deadlines_.emplace(request.deadline, ticket);
    live.request = std::move(request);
  }
  absorb();
  return out;
}

void RouterCore::count(const Request& request, RequestLimiter& limiter) const {
  const TimePoint now = clock_.now();
  if (!request.follows) limiter.count_request(now);
  // As in the usage that a client is told: all choices share one prompt.
  if (request.choice == 0) limiter.count_tokens(static_cast<int64_t>(request.prompt.size()), now);
}

void RouterCore::cancel(Ticket ticket) {
  const auto it = live_.find(ticket);
  if (it == live_.end()) return;
  Live& live = it->second;
  if (live.request) {
    const VariantId id = live.entry->id;
    end(ticket, FinishReason::kCancelled, Status());
    cache_.leave(id);
    absorb();
    return;
  }
  if (live.cancelled) return;
  live.cancelled = true;
  if (live.handle != 0) effect(RouterEffect::Kind::kCancel, live.entry).handle = live.handle;
}

void RouterCore::dispatched(Ticket ticket, const Result<RequestHandle>& handle) {
  const auto it = live_.find(ticket);
  if (it == live_.end()) return;  // finished already
  Live& live = it->second;
  if (!handle.ok()) {
    leave_queue(live, false);
    live_.erase(it);
    return;
  }
  live.handle = *handle;
  if (live.cancelled) effect(RouterEffect::Kind::kCancel, live.entry).handle = live.handle;
}

void RouterCore::started(Ticket ticket) {
  const auto it = live_.find(ticket);
  if (it != live_.end()) leave_queue(it->second, true);
}

void RouterCore::finished(Ticket ticket, int64_t output_tokens) {
  const auto it = live_.find(ticket);
  if (it == live_.end()) return;
  if (const auto& share = it->second.share; share && share->limiter)
    share->limiter->count_tokens(output_tokens, clock_.now());
  leave_queue(it->second, !it->second.cancelled);
  live_.erase(it);
}

Status RouterCore::cannot_load(const CatalogEntry& entry, const Status& why) {
  if (entry.current) ++counts(entry, entry.name).load_failures;
  return unavailable(fmt::format("variant '{}' cannot be loaded: {}", entry.name, why.message()));
}

void RouterCore::measured(VariantId id, const Result<VariantSize>& size) {
  const CatalogEntryRef entry = by_id_.at(id);
  const bool pinned = cache_.info(id).pinned;
  if (size.ok())
    cache_.measured(id, size->bytes, size->digest);
  else
    cache_.load_ended(id, cannot_load(*entry, size.status()), 0);
  if (pinned && !cache_.info(id).pinned)
    log_error("variant '{}' is pinned no longer: {}", entry->name, cache_.info(id).error.message());
  absorb();
}

bool RouterCore::load_outdated(VariantId id) {
  CatalogEntry& entry = *by_id_.at(id);
  // A member of the pool is its content: another one is no newer version.
  if (entry.pooled || ++entry.outdated > kMostOutdated) return false;
  cache_.load_outdated(id);
  absorb();
  return true;
}

void RouterCore::load_ended(VariantId id, Result<VariantRef> variant, double took) {
  const CatalogEntryRef entry = by_id_.at(id);
  Status status;
  int64_t bytes = 0;
  if (variant.ok()) {
    bytes = static_cast<int64_t>((*variant)->bytes);
    entry->digest = (*variant)->digest;
    entry->outdated = 0;
    if (cache_.loads_from_disk(id)) {
      entry->loads += 1;
      entry->load_seconds = took;
      load_seconds_.observe(took);
      if (entry->current) ++counts(*entry, entry->name).loads;
    } else {
      entry->promotions += 1;
      entry->promotion_seconds = took;
      promotion_seconds_.observe(took);
    }
    (cache_.filling(id) == Tier::kDevice ? entry->device : entry->host) = std::move(*variant);
  } else if (variant.status().code() == Code::kCancelled) {
    status = variant.status();
  } else {
    entry->outdated = 0;
    status = cannot_load(*entry, variant.status());
  }
  cache_.load_ended(id, status, bytes);
  absorb();
}

void RouterCore::copy_outdated(VariantId id) {
  // A member of the pool is its content: another one is no newer version.
  cache_.copy_outdated(id, !by_id_.at(id)->pooled);
  absorb();
}

void RouterCore::demoted(VariantId id, Result<VariantRef> copy) {
  const bool ok = copy.ok();
  if (ok) by_id_.at(id)->host = std::move(*copy);
  cache_.demoted(id, ok);
  absorb();
}

void RouterCore::freed(VariantId id, Tier tier) {
  cache_.freed(id, tier);
  absorb();
}

void RouterCore::tick() {
  for (const VariantId id : releases_->take()) cache_.release(id);
  while (!deadlines_.empty() && deadlines_.begin()->first <= clock_.now()) {
    const Ticket ticket = deadlines_.begin()->second;
    const CatalogEntryRef entry = live_.at(ticket).entry;
    const std::string name = live_.at(ticket).name;
    end(ticket, FinishReason::kError,
        Status(Code::kDeadlineExceeded,
               fmt::format("the request's time was up while variant '{}' was loading", name)));
    cache_.leave(entry->id);
  }
  cache_.tick();
  absorb();
}

TimePoint RouterCore::wake_time() const {
  const TimePoint wake = cache_.wake_time();
  return deadlines_.empty() ? wake : std::min(wake, deadlines_.begin()->first);
}

void RouterCore::end_waiting() {
  for (const auto& [id, entry] : by_id_) {
    const int64_t count = static_cast<int64_t>(entry->parked.size());
    for (const Ticket ticket : std::vector<Ticket>(entry->parked.begin(), entry->parked.end()))
      end(ticket, FinishReason::kCancelled, Status());
    if (count > 0) cache_.leave(id, count);
  }
  absorb();
}

void RouterCore::stop_loads() {
  for (const auto& [id, entry] : by_id_) entry->cancel_load = true;
}

}  // namespace deltad
