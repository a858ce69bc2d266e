#include "server/router_metrics.h"

#include <gtest/gtest.h>

#include "tests/unit/server/sample.h"

namespace deltad::testing {
namespace {

TEST(RouterMetrics, TheCache) {
  RouterStats stats;
  stats.device = {1000, 700, 200};
  stats.host = {50, 40, 0};
  stats.cache.requests = 12;
  stats.cache.hits = 7;
  stats.cache.misses = 4;
  stats.cache.evictions[0][static_cast<size_t>(EvictionReason::kAge)] = 3;
  stats.cache.evictions[1][static_cast<size_t>(EvictionReason::kRoom)] = 2;
  stats.cache.load_failures = 5;
  stats.waiting = {1, 2, 3, 4};
  stats.load_seconds.observe(0.2);
  stats.promotion_seconds.observe(0.002);
  stats.parked_seconds.observe(0.3);
  stats.variants[static_cast<size_t>(VariantState::kHost)] = 6;
  PrometheusText out;
  render_cache(stats, 9, out);
  const std::string& page = out.text();
  EXPECT_EQ(sample(page, R"(deltad_cache_budget_bytes{tier="device"})"), 1000);
  EXPECT_EQ(sample(page, R"(deltad_cache_used_bytes{tier="device"})"), 700);
  EXPECT_EQ(sample(page, R"(deltad_cache_loading_bytes{tier="device"})"), 200);
  EXPECT_EQ(sample(page, R"(deltad_cache_used_bytes{tier="host"})"), 40);
  EXPECT_EQ(sample(page, "deltad_cache_hits_total"), 7);
  EXPECT_EQ(sample(page, "deltad_cache_misses_total"), 4);
  EXPECT_EQ(sample(page, "deltad_cache_refused_total"), 1);
  EXPECT_EQ(sample(page, R"(deltad_cache_evictions_total{tier="device",reason="age"})"), 3);
  EXPECT_EQ(sample(page, R"(deltad_cache_evictions_total{tier="host",reason="room"})"), 2);
  EXPECT_EQ(sample(page, R"(deltad_cache_evictions_total{tier="host",reason="retired"})"), 0);
  EXPECT_EQ(sample(page, "deltad_load_failures_total"), 5);
  EXPECT_EQ(sample(page, R"(deltad_waiting{reason="load"})"), 1);
  EXPECT_EQ(sample(page, R"(deltad_waiting{reason="loader"})"), 2);
  EXPECT_EQ(sample(page, R"(deltad_waiting{reason="memory"})"), 3);
  EXPECT_EQ(sample(page, R"(deltad_waiting{reason="drain"})"), 4);
  EXPECT_EQ(sample(page, R"(deltad_waiting{reason="place"})"), 9);
  EXPECT_EQ(sample(page, R"(deltad_load_seconds_bucket{source="disk",le="0.1"})"), 0);
  EXPECT_EQ(sample(page, R"(deltad_load_seconds_bucket{source="disk",le="0.25"})"), 1);
  EXPECT_EQ(sample(page, R"(deltad_load_seconds_count{source="host"})"), 1);
  EXPECT_EQ(sample(page, "deltad_parked_seconds_sum"), 0.3);
  EXPECT_EQ(sample(page, R"(deltad_variants{state="host"})"), 6);
  EXPECT_EQ(sample(page, R"(deltad_variants{state="failed"})"), 0);
}

TEST(RouterMetrics, TheVariants) {
  RouterStats stats;
  VariantRow& row = stats.rows.emplace_back();
  row.name = "math";
  row.add(VariantState::kResident, 1000);
  row.load_seconds = 0.25;
  row.counts = {4, 3, 2, 1, 5};
  stats.others.add(VariantState::kHost, 10);
  stats.others.add(VariantState::kFailed, 0);
  stats.others.add(VariantState::kLoading, 0);
  stats.others.counts.loads = 8;
  PrometheusText out;
  render_variants(stats, out);
  const std::string& page = out.text();
  EXPECT_EQ(sample(page, R"(deltad_variant_residency{variant="math",place="device"})"), 1);
  EXPECT_EQ(sample(page, R"(deltad_variant_residency{variant="math",place="disk"})"), 0);
  EXPECT_EQ(sample(page, R"(deltad_variant_resident_bytes{variant="math"})"), 1000);
  EXPECT_EQ(sample(page, R"(deltad_variant_load_seconds{variant="math"})"), 0.25);
  EXPECT_EQ(sample(page, R"(deltad_variant_misses_total{variant="math"})"), 4);
  EXPECT_EQ(sample(page, R"(deltad_variant_loads_total{variant="math"})"), 3);
  EXPECT_EQ(sample(page, R"(deltad_variant_load_failures_total{variant="math"})"), 2);
  EXPECT_EQ(sample(page, R"(deltad_variant_evictions_total{variant="math"})"), 1);
  EXPECT_EQ(sample(page, R"(deltad_variant_rate_limited_total{variant="math"})"), 5);
  EXPECT_EQ(sample(page, R"(deltad_variant_residency{variant="other variants",place="host"})"), 1);
  EXPECT_EQ(sample(page, R"(deltad_variant_residency{variant="other variants",place="disk"})"), 2);
  EXPECT_EQ(sample(page, R"(deltad_variant_failed{variant="other variants"})"), 1);
  EXPECT_EQ(sample(page, R"(deltad_variant_loads_total{variant="other variants"})"), 8);
}

}  // namespace
}  // namespace deltad::testing
