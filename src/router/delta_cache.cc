// The events: what each changes in an entry. What follows for the room is in delta_cache_room.cc.
#include "router/delta_cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "router/delta_cache_edit.h"

namespace deltad {
namespace {

constexpr double kLongestBackOff = 60;  // seconds
constexpr double kNewLoad = 0.25;       // the weight of the last load in the mean of their rates

}  // namespace

bool DeltaCache::Rank::operator<(const Rank& other) const {
  return std::tie(stays, priority, last_use, id) <
         std::tie(other.stays, other.priority, other.last_use, other.id);
}

DeltaCache::DeltaCache(const CacheOptions& options, const Clock& clock,
                       std::unique_ptr<EvictionPolicy> policy)
    : options_(options),
      clock_(clock),
      policy_(policy ? std::move(policy)
                     : std::make_unique<DecayedRatePolicy>(options.half_life_seconds)),
      age_bound_(from_seconds(options.age_bound_seconds)) {
  device_.budget = options.device_bytes;
  host_.budget = options.host_bytes;
}

DeltaCache::Entry& DeltaCache::at(VariantId id) {
  const auto it = entries_.find(id);
  CHECK(it != entries_.end(), "the cache does not know this variant");
  return it->second;
}
const DeltaCache::Entry& DeltaCache::at(VariantId id) const {
  return const_cast<DeltaCache*>(this)->at(id);
}

VariantId DeltaCache::add(const std::string& name) {
  const VariantId id = ++last_id_;
  entries_[id].name = name;
  return id;
}

void DeltaCache::retire(VariantId id) {
  Entry& e = at(id);
  if (e.draining && e.waiting > 0) admit(id);
  {
    Edit edit(*this, id);
    e.retired = true;
    e.pinned = e.prefetch = false;
    stop_draining(id, e);
  }
  settle(id);
  pump();
}

void DeltaCache::succeed(VariantId from, VariantId to) { hand_over(from, to, at(from).waiting); }

void DeltaCache::hand_over(VariantId from, VariantId to, int64_t waiters) {
  Entry &old = at(from), &fresh = at(to);
  CHECK(old.waiting >= waiters, "more waiters are handed over than there are");
  bool pin = old.pinned;
  const bool loaded = old.device != Place::kNone;
  {
    Edit edit(*this, from);
    old.pinned = old.prefetch = false;
    old.waiting -= waiters;
  }
  {
    Edit edit(*this, to);
    fresh.priority = std::max(fresh.priority, old.priority);
    fresh.last_use = std::max(fresh.last_use, old.last_use);
    if (waiters > 0) {
      fresh.since = fresh.wanted() ? std::min(fresh.since, old.since) : old.since;
      if (fresh.device == Place::kCopyingOut && !fresh.gone) fresh.device = Place::kHere;
    }
    fresh.waiting += waiters;
    pin = pin && (fresh.bytes < 0 || pinned_ + fresh.bytes <= device_.budget);
  }
  if (waiters > 0 && fresh.device == Place::kHere && !fresh.draining) admit(to);
  settle(from);
  if (pin || (loaded && fresh.device == Place::kNone)) request_load(to, pin);
  settle(to);
  pump();
}

Result<bool> DeltaCache::want(VariantId id) {
  Entry& e = at(id);
  CHECK(!e.retired, "a request for a retired variant");
  const TimePoint now = clock_.now();
  ++stats_.requests;
  bool admitted = false;
  {
    Edit edit(*this, id);
    e.priority = policy_->on_request(id, e.priority, std::max<int64_t>(e.bytes, 0), now);
    e.last_use = now;
    if ((e.device == Place::kHere && !e.draining) || (e.device == Place::kCopyingOut && !e.gone)) {
      e.device = Place::kHere;
      ++e.in_flight;
      ++stats_.hits;
      admitted = true;
    } else if (!e.error.ok() && now < e.next_try && e.waiting == 0) {
      return e.error;
    } else if (const Status never = can_never_fit(e); !never.ok()) {
      return never;
    } else {
      if (e.waiting == 0 && !e.prefetch) e.since = now;
      ++e.waiting;
      ++stats_.misses;
    }
  }
  settle(id);
  pump();
  return admitted;
}

void DeltaCache::leave(VariantId id, int64_t waiters) {
  Entry& e = at(id);
  CHECK(e.waiting >= waiters, "more waiters leave than there are");
  {
    Edit edit(*this, id);
    e.waiting -= waiters;
  }
  settle(id);
  pump();
}

void DeltaCache::release(VariantId id) {
  Entry& e = at(id);
  CHECK(e.in_flight > 0, "released more often than admitted");
  {
    Edit edit(*this, id);
    --e.in_flight;
    e.last_use = clock_.now();
  }
  settle(id);
  pump();
}

// A load that nobody waits for.
void DeltaCache::request_load(VariantId id, bool pin) {
  Entry& e = at(id);
  {
    Edit edit(*this, id);
    if (!e.wanted()) e.since = clock_.now();
    e.pinned = e.pinned || pin;
    e.prefetch = e.prefetch || (!pin && e.device != Place::kHere);
    if (pin) stop_draining(id, e);
  }
  if (e.device == Place::kHere && e.waiting > 0) admit(id);
  settle(id);
}

Status DeltaCache::prefetch(VariantId id) {
  const Entry& e = at(id);
  RETURN_IF_ERROR(can_never_fit(e));
  if (!e.error.ok() && clock_.now() < e.next_try) return e.error;
  request_load(id, false);
  pump();
  return Status();
}

Status DeltaCache::pin(VariantId id) {
  const Entry& e = at(id);
  if (e.pinned) return Status();
  if (e.bytes >= 0 && pinned_ + e.bytes > device_.budget)
    return conflict(
        fmt::format("variant '{}' needs {} bytes and {} are pinned already: the budget is {}",
                    e.name, e.bytes, pinned_, device_.budget));
  request_load(id, true);
  pump();
  return Status();
}

void DeltaCache::unpin(VariantId id) {
  {
    Edit edit(*this, id);
    at(id).pinned = false;
  }
  settle(id);
  pump();
}

Status DeltaCache::evict(VariantId id) {
  Entry& e = at(id);
  if (e.pinned) return conflict(fmt::format("variant '{}' is pinned: unpin it first", e.name));
  if (e.in_flight + e.waiting > 0)
    return conflict(
        fmt::format("variant '{}' is in use by {} requests", e.name, e.in_flight + e.waiting));
  {
    Edit edit(*this, id);
    e.prefetch = false;
    // What cannot be freed now goes when the load, promotion or copy that runs has ended.
    e.dropped = e.job == Job::kLoad || e.job == Job::kPromote || e.host == Place::kFilling;
  }
  settle(id);  // cancels a load
  free_unused(id);
  pump();
  return Status();
}

// For evict(). What is wanted by now stays.
void DeltaCache::free_unused(VariantId id) {
  const Entry& e = at(id);
  if (e.wanted()) return;
  constexpr auto kAsked = EvictionReason::kAsked;
  if (e.device == Place::kHere && e.in_flight == 0) free_copy(id, Tier::kDevice, kAsked);
  if (e.host == Place::kHere && e.job == Job::kNone) free_copy(id, Tier::kHost, kAsked);
}

void DeltaCache::measured(VariantId id, int64_t bytes, const std::string& digest) {
  Entry& e = at(id);
  CHECK(e.job == Job::kMeasure && bytes >= 0, "measured, but not asked for");
  {
    Edit edit(*this, id);
    e.job = Job::kNone;
    e.bytes = bytes;
    e.digest = digest;
  }
  if (e.pinned && pinned_ > device_.budget) {
    {
      Edit edit(*this, id);
      e.pinned = false;
    }
    fail(id, can_never_fit(e));
  }
  settle(id);
  pump();
}

void DeltaCache::measured_before(VariantId id, int64_t bytes, const std::string& digest) {
  Entry& e = at(id);
  CHECK(bytes >= 0, "measured, but without a size");
  if (e.bytes >= 0) return;
  {
    Edit edit(*this, id);
    e.bytes = bytes;
    e.digest = digest;
  }
  pump();
}

void DeltaCache::load_outdated(VariantId id) {
  Entry& e = at(id);
  CHECK(e.job == Job::kLoad, "a load ended that never began");
  --loads_;
  loading_digests_.erase(e.digest);
  {
    Edit edit(*this, id);
    (e.device == Place::kFilling ? e.device : e.host) = Place::kNone;
    e.job = Job::kNone;
    e.cancelling = e.dropped = false;
    if (e.device == Place::kNone && e.host == Place::kNone) e.bytes = -1;
  }
  settle(id);
  pump();
}

void DeltaCache::load_ended(VariantId id, const Status& status, int64_t bytes) {
  Entry& e = at(id);
  CHECK(e.job != Job::kNone, "a load ended that never began");
  const bool on_device = e.device == Place::kFilling, cancelled = e.cancelling;
  const bool from_disk = e.job == Job::kLoad, promoted = e.job == Job::kPromote;
  if (e.job != Job::kMeasure) --running(e.job);
  if (from_disk) loading_digests_.erase(e.digest);
  {
    Edit edit(*this, id);
    if (e.job != Job::kMeasure)
      (on_device ? e.device : e.host) = status.ok() ? Place::kHere : Place::kNone;
    if (status.ok() && from_disk) {
      CHECK(bytes <= e.bytes, "a loaded variant takes more than was set aside");
      e.bytes = bytes;
    }
    if (status.ok() && (from_disk || promoted)) {
      const double rate =
          seconds(clock_.now() - e.began) / static_cast<double>(std::max<int64_t>(e.bytes, 1));
      double& mean = from_disk ? seconds_per_byte_ : seconds_per_byte_promoted_;
      mean += (mean == 0 ? 1 : kNewLoad) * (rate - mean);
    }
    e.job = Job::kNone;
    e.cancelling = false;
    if (status.ok()) {
      e.error = Status();
      e.back_off = 0;
      if (on_device) e.prefetch = false;
    } else if (e.device == Place::kNone && e.host == Place::kNone) {
      e.bytes = -1;  // the file may have changed
    }
  }
  if (status.ok()) {
    if (from_disk) ++stats_.loads;
    if (promoted) ++stats_.promotions;
    if (on_device && e.waiting > 0) admit(id);
  } else if (cancelled) {
    ++stats_.loads_cancelled;
  } else {
    ++stats_.load_failures;
    fail(id, status, true);
  }
  if (std::exchange(e.dropped, false)) free_unused(id);
  settle(id);
  pump();
}

void DeltaCache::copy_outdated(VariantId id, bool measure) {
  Entry& e = at(id);
  CHECK(e.job == Job::kPromote && e.host == Place::kHere, "a promotion ended that never began");
  --promotions_;
  {
    Edit edit(*this, id);
    e.device = Place::kNone;
    e.job = Job::kNone;
    e.cancelling = e.dropped = false;
    e.outdated = measure;
  }
  free_copy(id, Tier::kHost, EvictionReason::kRetired);
  settle(id);
  pump();
}

void DeltaCache::demoted(VariantId id, bool ok) {
  Entry& e = at(id);
  CHECK(e.host == Place::kFilling, "a copy ended that never began");
  {
    Edit edit(*this, id);
    e.host = ok ? Place::kHere : Place::kNone;
  }
  if (ok) ++stats_.demotions;
  if (e.device == Place::kCopyingOut) free_copy(id, Tier::kDevice, e.why);
  if (std::exchange(e.dropped, false)) free_unused(id);
  settle(id);
  pump();
}

void DeltaCache::freed(VariantId id, Tier tier) {
  Entry& e = at(id);
  Place& place = tier == Tier::kDevice ? e.device : e.host;
  CHECK(place == Place::kFreeing, "freed, but not asked for");
  {
    Edit edit(*this, id);
    place = Place::kNone;
    if (tier == Tier::kDevice) e.gone = false;
    if (e.outdated) e.bytes = -1;
    e.outdated = false;
  }
  settle(id);
  pump();
}

Status DeltaCache::set_budget(Tier tier, int64_t bytes) {
  if (tier == Tier::kDevice && pinned_ > bytes)
    return resource_exhausted(
        fmt::format("a budget of {} bytes: {} are pinned; unpin first", bytes, pinned_));
  (tier == Tier::kDevice ? device_ : host_).budget = bytes;
  std::vector<VariantId> too_large;
  for (const auto& [since, id] : queue_)
    if (!can_never_fit(at(id)).ok()) too_large.push_back(id);
  for (const VariantId id : too_large) {
    fail(id, can_never_fit(at(id)));
    settle(id);
  }
  pump();
  return Status();
}

void DeltaCache::tick() {
  while (!retries_.empty() && retries_.begin()->first <= clock_.now()) {
    const VariantId id = retries_.begin()->second;
    {
      Edit edit(*this, id);
      at(id).error = Status();
    }
    settle(id);
  }
  pump();
}

// The waiters end with the status. back_off: for the next ones too, for a while.
void DeltaCache::fail(VariantId id, Status status, bool back_off) {
  Entry& e = at(id);
  const int64_t count = e.waiting;
  {
    Edit edit(*this, id);
    e.waiting = 0;
    e.prefetch = false;
    if (back_off || e.pinned) {
      e.error = status;
      e.back_off =
          e.back_off == 0 ? options_.retry_seconds : std::min(2 * e.back_off, kLongestBackOff);
      e.next_try = clock_.now() + from_seconds(e.back_off);
    }
  }
  if (count == 0) return;
  CacheAction action;
  action.kind = CacheAction::Kind::kFail;
  action.id = id;
  action.count = count;
  action.status = std::move(status);
  actions_.push_back(std::move(action));
}

void DeltaCache::admit(VariantId id) {
  Entry& e = at(id);
  CacheAction action;
  action.kind = CacheAction::Kind::kAdmit;
  action.id = id;
  action.count = e.waiting;
  actions_.push_back(std::move(action));
  Edit edit(*this, id);
  e.in_flight += e.waiting;
  e.waiting = 0;
  e.last_use = clock_.now();
}

// What an entry as it is asks for by itself. May forget it.
void DeltaCache::settle(VariantId id) {
  Entry& e = at(id);
  if (e.retired && e.in_flight + e.waiting == 0) {
    constexpr auto kRetired = EvictionReason::kRetired;
    if (e.device == Place::kHere) free_copy(id, Tier::kDevice, kRetired);
    if (e.host == Place::kHere && e.job == Job::kNone) free_copy(id, Tier::kHost, kRetired);
    if (e.device == Place::kNone && e.host == Place::kNone && e.job == Job::kNone) {
      index(id, e, -1);
      entries_.erase(id);
      return;
    }
  }
  const bool filling = e.job == Job::kLoad || e.job == Job::kPromote;
  if (filling && !e.wanted() && !e.cancelling) {
    e.cancelling = true;
    act(CacheAction::Kind::kCancel, id);
  }
  if (e.bytes < 0 && e.job == Job::kNone && e.asks_now()) {
    Edit edit(*this, id);
    e.job = Job::kMeasure;
    act(CacheAction::Kind::kMeasure, id);
  }
}

Status DeltaCache::can_never_fit(const Entry& e) const {
  const int64_t pinned = pinned_ - (e.pinned && e.bytes >= 0 ? e.bytes : 0);
  if (e.device != Place::kNone || e.bytes + pinned <= device_.budget) return Status();
  if (e.bytes > device_.budget || pinned == 0)
    return unavailable(
        fmt::format("variant '{}' needs {} bytes and can never fit: the budget is {}", e.name,
                    e.bytes, device_.budget));
  return unavailable(
      fmt::format("variant '{}' needs {} bytes: of the budget of {}, {} are pinned by others",
                  e.name, e.bytes, device_.budget, pinned));
}

CacheEntryInfo DeltaCache::info(VariantId id) const {
  const Entry& e = at(id);
  CacheEntryInfo out;
  if (e.device == Place::kHere || e.device == Place::kCopyingOut)
    out.residency = Residency::kDevice;
  else if (e.job != Job::kNone)
    out.residency = Residency::kLoading;
  else if (e.host == Place::kHere)
    out.residency = Residency::kHost;
  out.bytes = e.bytes;
  out.waiting = e.waiting;
  out.in_flight = e.in_flight;
  out.pinned = e.pinned;
  out.draining = e.draining;
  out.priority = e.priority;
  out.last_use = e.last_use;
  out.error = e.error.ok() ? can_never_fit(e) : e.error;
  out.next_try = e.next_try;
  return out;
}

CacheTierInfo DeltaCache::tier(Tier tier) const {
  const Memory& memory = tier == Tier::kDevice ? device_ : host_;
  return {memory.budget, memory.used, memory.filling};
}

CacheWaiting DeltaCache::waiting() const {
  CacheWaiting out;
  out.load = waiting_loads_;
  out.drain = waiting_drains_;
  (loads_ >= options_.max_loads ? out.loader : out.memory) = waiting_room_;
  return out;
}

}  // namespace deltad
