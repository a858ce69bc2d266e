// Who gets room, and who makes it: the queue of variants that wait for memory, eviction, demotion,
// and draining for those that have waited too long.
#include <algorithm>

#include "base/check.h"
#include "router/delta_cache.h"
#include "router/delta_cache_edit.h"

namespace deltad {
namespace {

// So many of the queue are looked at on each event: those behind one that finds no room may go
// first if there is room for them, and the cost of an event stays bounded. As many of those in use
// are looked at for colder ones.
constexpr size_t kLookahead = 8;

template <typename Set, typename Key>
void update(Set& set, const Key& key, bool member, int sign) {
  if (!member) return;
  if (sign > 0)
    set.insert(key);
  else
    set.erase(key);
}

}  // namespace

// All indexes and sums follow from the entry alone.
void DeltaCache::index(VariantId id, const Entry& e, int sign) {
  const int64_t bytes = sign * std::max<int64_t>(e.bytes, 0);
  const bool here = e.device == Place::kHere, used = e.in_flight > 0;
  const Rank rank{!e.draining, e.priority, e.last_use, id};
  const bool idle = here && !used && !e.pinned && (e.waiting == 0 || e.draining);
  if (e.device != Place::kNone) device_.used += bytes;
  if (e.device == Place::kCopyingOut || e.device == Place::kFreeing) device_.leaving += bytes;
  if (idle) device_.idle += bytes;
  if (e.device == Place::kFilling) device_.filling += bytes;
  update(device_.victims, rank, idle, sign);
  update(busy_, rank, here && used && !e.pinned && !e.draining && !e.retired, sign);
  if (here && used && (e.draining || e.retired)) going_ += bytes;
  if (e.pinned) pinned_ += bytes;

  // A copy of what is on the device too is the first to go: nothing is lost with it.
  const bool twice = here || e.device == Place::kFilling;
  const bool host_idle =
      e.host == Place::kHere && e.job == Job::kNone && !(e.device == Place::kNone && e.wanted());
  if (e.host != Place::kNone) host_.used += bytes;
  if (e.host == Place::kFreeing) host_.leaving += bytes;
  if (host_idle) host_.idle += bytes;
  if (e.host == Place::kFilling) host_.filling += bytes;
  update(host_.victims, Rank{!twice, e.priority, e.last_use, id}, host_idle, sign);

  const bool elsewhere = e.device == Place::kNone && e.job == Job::kNone && !e.outdated;
  update(queue_, std::pair(e.since, id), elsewhere && e.bytes >= 0 && e.asks_now(), sign);
  update(retries_, std::pair(e.next_try, id), elsewhere && e.pinned && !e.asks_now(), sign);

  (e.job != Job::kNone                ? waiting_loads_
   : here && e.draining && !e.retired ? waiting_drains_
                                      : waiting_room_) += sign * e.waiting;
}

void DeltaCache::act(CacheAction::Kind kind, VariantId id, Tier tier) {
  CacheAction action;
  action.kind = kind;
  action.id = id;
  action.tier = tier;
  action.bytes = std::max<int64_t>(at(id).bytes, 0);
  actions_.push_back(std::move(action));
}

// Gives room to whom it is due. Called at the end of every event.
void DeltaCache::pump() {
  while (host_.free() + host_.leaving < 0 && !host_.victims.empty())
    free_copy(host_.victims.begin()->id, Tier::kHost, EvictionReason::kBudget);
  patience_ends_ = TimePoint::max();
  if (queue_.empty() && draining_.empty() && device_.free() + device_.leaving >= 0) return;

  Pass pass;
  make_device_room(0, &pass);  // the budget may have been lowered
  pass.shortage = -(device_.free() + device_.leaving);
  std::vector<VariantId> first;
  for (auto it = queue_.begin(); it != queue_.end() && first.size() < kLookahead; ++it)
    first.push_back(it->second);
  for (const VariantId id : first) give_room(id, &pass);
  drain(pass);
}

void DeltaCache::give_room(VariantId id, Pass* pass) {
  const Entry& e = at(id);
  if (const Status never = can_never_fit(e); !never.ok()) {
    fail(id, never);
    settle(id);
    return;
  }
  if (!e.digest.empty() && loading_digests_.count(e.digest) > 0) return;
  // A copy within memory does not queue behind those that read.
  const Job job = e.host == Place::kHere ? Job::kPromote : Job::kLoad;
  if (running(job) >= (job == Job::kPromote ? 1 : options_.max_loads)) {
    pass->keep = true;
    return;
  }
  const int64_t needed = pass->promised + e.bytes;
  const bool aged = e.waiting > 0 && clock_.now() >= e.since + age_bound_ &&
                    needed + pinned_ - (e.pinned ? e.bytes : 0) <= device_.budget;
  const bool room = device_.free() + device_.leaving + device_.idle >= needed;
  if (aged || room) make_device_room(needed, pass, aged ? TimePoint::min() : e.since);
  if (device_.free() >= needed) {
    start_fill(id, job, Tier::kDevice);
    return;
  }
  if (aged || room) pass->promised = needed;
  if (aged) pass->shortage = std::max(pass->shortage, needed - device_.free() - device_.leaving);
  if (aged || room || e.host != Place::kNone || !options_.loads_to_host) return;
  // No room on the device for now: as far as the host at least.
  if (host_room(e.bytes, Rank{true, e.priority, e.last_use, id}) == HostRoom::kThere)
    start_fill(id, Job::kLoad, Tier::kHost);
}

// Evicts what is idle until `needed` bytes are free or about to be, for one that has waited since
// `since`.
void DeltaCache::make_device_room(int64_t needed, Pass* pass, TimePoint since) {
  while (device_.free() + device_.leaving < needed && !device_.victims.empty()) {
    const VariantId victim = device_.victims.begin()->id;
    if (waits_for_colder(victim, needed, since)) return;
    const EvictionReason reason = device_.free() + device_.leaving < 0 ? EvictionReason::kBudget
                                  : at(victim).draining                ? EvictionReason::kAge
                                                                       : EvictionReason::kRoom;
    if (!evict_device(victim, reason)) {
      pass->keep = true;
      return;
    }
  }
}

// Whether variants in use will make the room, all of them much less asked for than `victim`, and
// it is too early to stop waiting for that: longer than `victim` takes to load again is no gain.
bool DeltaCache::waits_for_colder(VariantId id, int64_t needed, TimePoint since) {
  const Entry& victim = at(id);
  if (victim.draining || since == TimePoint::min()) return false;
  const TimePoint end = since + std::min(from_seconds(reload_seconds(id)), age_bound_);
  if (end <= clock_.now()) return false;
  int64_t shortage = needed - device_.free() - device_.leaving;
  size_t looked = 0;
  for (auto it = busy_.begin(); it != busy_.end() && shortage > 0 && looked < kLookahead;
       ++it, ++looked) {
    if (!policy_->much_colder(it->priority, victim.priority)) break;
    shortage -= at(it->id).bytes;
  }
  if (shortage > 0) return false;
  patience_ends_ = std::min(patience_ends_, end);
  return true;
}

// From where it will lie when it has left the device.
double DeltaCache::reload_seconds(VariantId id) const {
  const Entry& e = at(id);
  std::vector<VariantId> victims;
  const Rank rank{true, e.priority, e.last_use, id};
  const bool on_host =
      e.host != Place::kNone || find_host_room(e.bytes, rank, &victims) != HostRoom::kNone;
  return (on_host ? seconds_per_byte_promoted_ : seconds_per_byte_) * static_cast<double>(e.bytes);
}

// False: the host makes room for it first.
bool DeltaCache::evict_device(VariantId id, EvictionReason reason) {
  Entry& e = at(id);
  if (e.host == Place::kNone) {
    const HostRoom room = host_room(e.bytes, Rank{true, e.priority, e.last_use, id});
    if (room == HostRoom::kComing) return false;
    if (room == HostRoom::kThere) {
      {
        Edit edit(*this, id);
        e.host = Place::kFilling;
      }
      act(CacheAction::Kind::kDemote, id, Tier::kHost);
    }
  }
  policy_->on_evict(id, e.priority);
  {
    Edit edit(*this, id);
    e.gone = e.draining;
    stop_draining(id, e);
  }
  free_copy(id, Tier::kDevice, reason);
  return true;
}

// Whether the host has room for so many bytes, or can make it of copies that rank below: victims.
DeltaCache::HostRoom DeltaCache::find_host_room(int64_t bytes, const Rank& rank,
                                                std::vector<VariantId>* victims) const {
  if (host_.budget == 0 || bytes > host_.budget) return HostRoom::kNone;
  if (host_.free() >= bytes) return HostRoom::kThere;
  int64_t room = host_.free() + host_.leaving;
  for (auto it = host_.victims.begin(); room < bytes && it != host_.victims.end() && *it < rank;
       ++it) {
    room += at(it->id).bytes;
    victims->push_back(it->id);
  }
  return room < bytes ? HostRoom::kNone : HostRoom::kComing;
}

// The same, and lets the victims go.
DeltaCache::HostRoom DeltaCache::host_room(int64_t bytes, const Rank& rank) {
  std::vector<VariantId> victims;
  const HostRoom room = find_host_room(bytes, rank, &victims);
  if (room != HostRoom::kComing) return room;
  for (const VariantId victim : victims) free_copy(victim, Tier::kHost, EvictionReason::kRoom);
  return room;
}

void DeltaCache::free_copy(VariantId id, Tier tier, EvictionReason reason) {
  Entry& e = at(id);
  {
    Edit edit(*this, id);
    if (tier == Tier::kDevice && e.copying()) {  // freed when the copy is done
      e.device = Place::kCopyingOut;
      e.why = reason;
      return;
    }
    (tier == Tier::kDevice ? e.device : e.host) = Place::kFreeing;
  }
  act(CacheAction::Kind::kFree, id, tier);
  actions_.back().reason = reason;
  ++stats_.evictions[static_cast<size_t>(tier)][static_cast<size_t>(reason)];
}

void DeltaCache::start_fill(VariantId id, Job job, Tier tier) {
  Entry& e = at(id);
  {
    Edit edit(*this, id);
    e.job = job;
    e.began = clock_.now();
    (tier == Tier::kDevice ? e.device : e.host) = Place::kFilling;
  }
  ++running(job);
  if (job == Job::kLoad && !e.digest.empty()) loading_digests_.insert(e.digest);
  act(job == Job::kLoad ? CacheAction::Kind::kLoad : CacheAction::Kind::kPromote, id, tier);
}

// Lets as many variants in use drain as make up for the shortage, those with the lowest priority,
// and no longer those that are not needed any more.
void DeltaCache::drain(const Pass& pass) {
  if (pass.keep) return;
  while (going_ < pass.shortage && !busy_.empty()) {
    const VariantId id = busy_.begin()->id;
    Edit edit(*this, id);
    at(id).draining = true;
    draining_.push_back(id);
  }
  const std::vector<VariantId> chosen(draining_.rbegin(), draining_.rend());
  for (const VariantId id : chosen) {
    Entry& e = at(id);
    const int64_t without = going_ - (e.in_flight > 0 ? e.bytes : 0);
    if (without < std::max<int64_t>(pass.shortage, 0) && e.in_flight > 0) continue;
    {
      Edit edit(*this, id);
      stop_draining(id, e);
    }
    if (e.waiting > 0) admit(id);
  }
}

void DeltaCache::stop_draining(VariantId id, Entry& e) {
  if (!e.draining) return;
  e.draining = false;
  std::erase(draining_, id);
}

TimePoint DeltaCache::wake_time() const {
  TimePoint wake = patience_ends_;
  if (!retries_.empty()) wake = std::min(wake, retries_.begin()->first);
  const TimePoint now = clock_.now();
  size_t looked = 0;
  for (auto it = queue_.begin(); it != queue_.end() && looked < kLookahead; ++it, ++looked) {
    const TimePoint aged = it->first + age_bound_;
    if (aged <= now || at(it->second).waiting == 0) continue;
    wake = std::min(wake, aged);
    break;
  }
  return wake;
}

}  // namespace deltad
