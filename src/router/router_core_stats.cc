// What the core tells of itself: each variant for lists, and the figures for /metrics.
#include <algorithm>

#include "router/router_core.h"

namespace deltad {
namespace {

VariantState state_of(const CatalogEntry& entry, const CacheEntryInfo& in_cache) {
  if (!entry.broken.ok()) return VariantState::kFailed;
  switch (in_cache.residency) {
    case Residency::kDevice:
      return VariantState::kResident;
    case Residency::kHost:
      return VariantState::kHost;
    case Residency::kLoading:
      return VariantState::kLoading;
    case Residency::kDisk:
      break;
  }
  if (in_cache.waiting > 0) return VariantState::kLoading;
  return in_cache.error.ok() ? VariantState::kRegistered : VariantState::kFailed;
}

int64_t resident_bytes(const CacheEntryInfo& in_cache, VariantState state) {
  return state == VariantState::kResident || state == VariantState::kHost ? in_cache.bytes : 0;
}

}  // namespace

Result<VariantInfo> RouterCore::variant(const std::string& name) const {
  ASSIGN_OR_RETURN(const CatalogName named, find(name));
  return info(name, named);
}

std::vector<VariantInfo> RouterCore::variants() const {
  std::vector<VariantInfo> out;
  for (const auto& [name, named] : catalog_.names()) out.push_back(info(name, named));
  return out;
}

VariantInfo RouterCore::info(const std::string& name, const CatalogName& named) const {
  const CatalogEntry& entry = *named.entry;
  const CacheEntryInfo in_cache = cache_.info(entry.id);
  const TimePoint now = clock_.now();
  VariantInfo out;
  out.name = name;
  if (entry.name != name) out.member = entry.name;
  out.path = entry.path;
  out.digest = entry.digest;
  out.state = state_of(entry, in_cache);
  out.bytes = static_cast<size_t>(resident_bytes(in_cache, out.state));
  out.error = (entry.broken.ok() ? in_cache.error : entry.broken).message();
  out.loads = entry.loads;
  out.load_seconds = entry.load_seconds;
  out.promotions = entry.promotions;
  out.promotion_seconds = entry.promotion_seconds;
  out.created = entry.created;
  out.pinned = in_cache.pinned;
  out.waiting = in_cache.waiting;
  out.in_flight = in_cache.in_flight;
  out.rate = rate_.rate(in_cache.priority, now);
  if (in_cache.last_use != TimePoint{}) out.idle_seconds = seconds(now - in_cache.last_use);
  if (named.share->limiter) out.limit = named.share->limiter->limit();
  out.retry_seconds = std::max(0.0, seconds(in_cache.next_try - now));
  return out;
}

RouterStats RouterCore::stats() const {
  RouterStats out;
  out.cache = cache_.stats();
  out.device = cache_.tier(Tier::kDevice);
  out.host = cache_.tier(Tier::kHost);
  out.waiting = cache_.waiting();
  out.load_seconds = load_seconds_;
  out.promotion_seconds = promotion_seconds_;
  out.parked_seconds = parked_seconds_;
  out.others.counts = counts_.others();
  int64_t measured = 0, measured_bytes = 0;
  for (const auto& [name, named] : catalog_.names()) {  // in their order
    const CatalogEntryRef& entry = named.entry;
    const CacheEntryInfo in_cache = cache_.info(entry->id);
    const VariantState state = state_of(*entry, in_cache);
    // What a member of the pool takes is counted once, and not under each name that it answers.
    const bool itself = entry->name == name;
    const int64_t bytes = itself ? resident_bytes(in_cache, state) : 0;
    if (itself) {
      ++out.registered;
      ++out.variants[static_cast<size_t>(state)];
    }
    if (itself && in_cache.bytes > 0) {
      ++measured;
      measured_bytes += in_cache.bytes;
    }
    const VariantCounts* own = counts_.find(name);
    if (own == nullptr) {
      if (itself) out.others.add(state, bytes);
      continue;
    }
    VariantRow& row = out.rows.emplace_back();
    row.name = name;
    row.load_seconds = entry->load_seconds;
    row.counts = *own;
    row.add(state, bytes);
  }
  out.fit = out.registered;
  if (measured > 0)
    out.fit =
        std::min(out.fit, std::max<int64_t>(1, out.device.budget * measured / measured_bytes));
  return out;
}

}  // namespace deltad
