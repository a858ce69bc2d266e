#include "server/router_metrics.h"

#include <string>
#include <utility>
#include <vector>

namespace deltad {
namespace {

constexpr std::pair<Tier, const char*> kTiers[] = {{Tier::kDevice, "device"},
                                                   {Tier::kHost, "host"}};
constexpr std::pair<EvictionReason, const char*> kReasons[] = {
    {EvictionReason::kRoom, "room"},
    {EvictionReason::kAge, "age"},
    {EvictionReason::kBudget, "budget"},
    {EvictionReason::kAsked, "admin"},
    {EvictionReason::kRetired, "retired"}};
static_assert(std::size(kReasons) == kEvictionReasons);

void counter(PrometheusText& out, const char* name, const char* help, uint64_t value) {
  out.family(name, "counter", help);
  out.sample({}, static_cast<double>(value));
}

void render_tiers(const RouterStats& stats, PrometheusText& out) {
  const auto table = [&](const char* name, const char* help, int64_t CacheTierInfo::*field) {
    out.family(name, "gauge", help);
    out.sample({{"tier", "device"}}, static_cast<double>(stats.device.*field));
    out.sample({{"tier", "host"}}, static_cast<double>(stats.host.*field));
  };
  table("deltad_cache_budget_bytes", "Memory that variants may take.", &CacheTierInfo::budget);
  table("deltad_cache_used_bytes",
        "Memory of variants: loaded, being loaded and not yet given back.", &CacheTierInfo::used);
  table("deltad_cache_loading_bytes", "Of it, set aside for loads and copies in progress.",
        &CacheTierInfo::loading);
  out.family("deltad_cache_evictions_total", "counter",
             "Variants dropped from memory: room = for one that waited, age = drained for one that "
             "had waited too long, budget = the budget was lowered, admin = asked for, retired = "
             "replaced or removed.");
  for (const auto& [tier, tier_name] : kTiers)
    for (const auto& [reason, reason_name] : kReasons)
      out.sample({{"tier", tier_name}, {"reason", reason_name}},
                 static_cast<double>(stats.cache.evicted(tier, reason)));
}

void render_loads(const RouterStats& stats, PrometheusText& out) {
  const CacheStats& cache = stats.cache;
  counter(out, "deltad_cache_hits_total", "Requests whose variant was in memory.", cache.hits);
  counter(out, "deltad_cache_misses_total", "Requests that had to wait for their variant.",
          cache.misses);
  counter(out, "deltad_cache_refused_total",
          "Requests refused because the variant failed to load a moment ago or can never fit.",
          cache.requests - cache.hits - cache.misses);
  out.family("deltad_load_seconds", "histogram",
             "Loads that succeeded: disk = file read and verified, host = copied to the device.");
  out.histogram({{"source", "disk"}}, stats.load_seconds);
  out.histogram({{"source", "host"}}, stats.promotion_seconds);
  counter(out, "deltad_load_failures_total", "Loads that failed.", cache.load_failures);
  counter(out, "deltad_loads_cancelled_total", "Loads stopped because nobody waited any more.",
          cache.loads_cancelled);
  counter(out, "deltad_demotions_total", "Variants copied from the device to the host.",
          cache.demotions);
}

}  // namespace

void render_cache(const RouterStats& stats, int64_t engine_waiting, PrometheusText& out) {
  render_tiers(stats, out);
  render_loads(stats, out);
  out.family("deltad_waiting", "gauge",
             "Requests by what they wait for: load = their variant's load, loader = loads of "
             "others to end, memory = room, drain = their variant to leave and come back, place = "
             "a place in the engine's step.");
  const std::pair<const char*, int64_t> waiting[] = {{"load", stats.waiting.load},
                                                     {"loader", stats.waiting.loader},
                                                     {"memory", stats.waiting.memory},
                                                     {"drain", stats.waiting.drain},
                                                     {"place", engine_waiting}};
  for (const auto& [reason, count] : waiting)
    out.sample({{"reason", reason}}, static_cast<double>(count));
  out.family("deltad_parked_seconds", "histogram",
             "How long requests waited for their variant, whatever came of it.");
  out.histogram({}, stats.parked_seconds);
  out.family("deltad_variants", "gauge", "Registered variants, by state.");
  for (size_t state = 0; state < kVariantStates; ++state)
    out.sample({{"state", variant_state_name(static_cast<VariantState>(state))}},
               static_cast<double>(stats.variants[state]));
}

void render_variants(const RouterStats& stats, PrometheusText& out) {
  std::vector<const VariantRow*> rows;
  for (const VariantRow& row : stats.rows) rows.push_back(&row);
  VariantRow others = stats.others;
  others.name = kOtherVariants;
  rows.push_back(&others);

  out.family("deltad_variant_residency", "gauge", "1 at the place where the variant lies.");
  for (const VariantRow* row : rows) {
    const std::pair<const char*, int64_t> places[] = {
        {"device", row->device}, {"host", row->host}, {"disk", row->disk}};
    for (const auto& [place, count] : places)
      out.sample({{"variant", row->name}, {"place", place}}, static_cast<double>(count));
  }
  const auto table = [&](const char* name, const char* type, const char* help, auto value) {
    out.family(name, type, help);
    for (const VariantRow* row : rows)
      out.sample({{"variant", row->name}}, static_cast<double>(value(*row)));
  };
  table("deltad_variant_resident_bytes", "gauge", "Memory of the variant's weights.",
        [](const VariantRow& row) { return row.bytes; });
  table("deltad_variant_failed", "gauge", "1 if the last load failed, or if it cannot fit.",
        [](const VariantRow& row) { return row.failed; });
  table("deltad_variant_load_seconds", "gauge", "Duration of the last load from the disk.",
        [](const VariantRow& row) { return row.load_seconds; });
  table("deltad_variant_loads_total", "counter", "Loads from the disk that succeeded.",
        [](const VariantRow& row) { return row.counts.loads; });
  table("deltad_variant_load_failures_total", "counter", "Loads that failed.",
        [](const VariantRow& row) { return row.counts.load_failures; });
  table("deltad_variant_misses_total", "counter", "Requests that had to wait for the variant.",
        [](const VariantRow& row) { return row.counts.misses; });
  table("deltad_variant_evictions_total", "counter", "Evictions from the device.",
        [](const VariantRow& row) { return row.counts.evictions; });
  table("deltad_variant_rate_limited_total", "counter", "Requests refused by its rate limit.",
        [](const VariantRow& row) { return row.counts.limited; });
}

}  // namespace deltad
