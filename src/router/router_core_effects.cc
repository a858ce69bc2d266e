// What follows from an event of the core: waiting requests that go on or end, and the cache's
// actions turned into effects.
#include "base/check.h"
#include "router/router_core.h"

namespace deltad {

void RouterCore::unpark(LiveMap::iterator it) {
  Live& live = it->second;
  live.entry->parked.erase(it->first);
  if (live.request->deadline != TimePoint::max())
    deadlines_.erase({live.request->deadline, it->first});
  --waiting_;
  parked_seconds_.observe(seconds(clock_.now() - live.parked));
}

void RouterCore::leave_queue(Live& live, bool served) {
  if (!live.queued) return;
  live.queued = false;
  bounds_.leave(live.share.get(), served, clock_.now());
}

// A waiting request ends here; the cache is told by the caller.
void RouterCore::end(Ticket ticket, FinishReason reason, Status status) {
  const auto it = live_.find(ticket);
  unpark(it);
  leave_queue(it->second, false);
  RouterEffect& out = effect(RouterEffect::Kind::kEnd, it->second.entry);
  out.on_event = std::move(it->second.request->on_event);
  out.event = ended_event(reason, std::move(status));
  out.event.parked = it->second.parked;
  out.event.unparked = clock_.now();
  live_.erase(it);
}

void RouterCore::end_all(const CatalogEntryRef& entry, const Status& status) {
  end_these(entry, std::vector<Ticket>(entry->parked.begin(), entry->parked.end()), status);
}

void RouterCore::end_these(const CatalogEntryRef& entry, const std::vector<Ticket>& tickets,
                           const Status& status) {
  for (const Ticket ticket : tickets) end(ticket, FinishReason::kError, status);
  if (!tickets.empty()) cache_.leave(entry->id, static_cast<int64_t>(tickets.size()));
}

RouterEffect& RouterCore::effect(RouterEffect::Kind kind, const CatalogEntryRef& entry) {
  RouterEffect& out = effects_.emplace_back();
  out.kind = kind;
  out.entry = entry;
  return out;
}

// Turns what the cache wants done into effects.
void RouterCore::absorb() {
  for (auto actions = cache_.take_actions(); !actions.empty(); actions = cache_.take_actions())
    for (const CacheAction& action : actions) perform(action);
  std::erase_if(retired_, [&](VariantId id) {
    if (cache_.known(id)) return false;
    by_id_.erase(id);
    return true;
  });
}

void RouterCore::perform(const CacheAction& action) {
  using Kind = CacheAction::Kind;
  const CatalogEntryRef entry = by_id_.at(action.id);
  const std::vector<Ticket> tickets(entry->parked.begin(), entry->parked.end());
  switch (action.kind) {
    case Kind::kMeasure:
      effect(RouterEffect::Kind::kMeasure, entry);
      return;
    case Kind::kLoad:
    case Kind::kPromote:
    case Kind::kDemote:
      return start_job(action, entry);
    case Kind::kFree: {
      RouterEffect& out = effect(RouterEffect::Kind::kFree, entry);
      out.tier = action.tier;
      out.variant = std::move(action.tier == Tier::kDevice ? entry->device : entry->host);
      if (entry->current && action.tier == Tier::kDevice) ++counts(*entry, entry->name).evictions;
      return;
    }
    case Kind::kCancel:
      entry->cancel_load = true;
      return;
    case Kind::kAdmit:
      CHECK(action.count == static_cast<int64_t>(tickets.size()), "a waiter is lost");
      for (const Ticket ticket : tickets) {
        const auto it = live_.find(ticket);
        unpark(it);
        RouterEffect& out = effect(RouterEffect::Kind::kDispatch, entry);
        out.ticket = ticket;
        out.request = std::move(*it->second.request);
        out.request.parked = it->second.parked;
        out.request.unparked = clock_.now();
        out.request.variant = ReleaseBox::handle(releases_, entry->device, entry->id);
        it->second.request.reset();
      }
      return;
    case Kind::kFail:
      CHECK(action.count == static_cast<int64_t>(tickets.size()), "a waiter is lost");
      for (const Ticket ticket : tickets) end(ticket, FinishReason::kError, action.status);
      return;
  }
}

void RouterCore::start_job(const CacheAction& action, const CatalogEntryRef& entry) {
  RouterEffect& out = effect(RouterEffect::Kind::kLoad, entry);
  out.tier = action.tier;
  out.bytes = action.bytes;
  out.digest = cache_.digest(action.id);
  if (action.kind == CacheAction::Kind::kPromote) {
    out.kind = RouterEffect::Kind::kPromote;
    out.variant = entry->host;
  } else if (action.kind == CacheAction::Kind::kDemote) {
    out.kind = RouterEffect::Kind::kDemote;
    out.variant = entry->device;
    return;  // a demotion cannot be cancelled: the flag is that of a load
  }
  entry->cancel_load = false;
}

}  // namespace deltad
