// RouterStats: what the router and its delta cache have counted and how they stand, as /metrics
// shows it. A snapshot; the counting is done in DeltaCache and RouterCore, where things happen.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/histogram.h"
#include "router/catalog.h"
#include "router/delta_cache.h"

namespace deltad {

// So many variants are counted each by itself: those asked for last. The rest is counted together.
constexpr size_t kMostVariantSeries = 100;

struct VariantCounts {  // of one variant's name, or of several
  uint64_t misses = 0;  // requests that had to wait for it
  uint64_t loads = 0, load_failures = 0;
  uint64_t evictions = 0;  // from the device; not when replaced or removed
  uint64_t limited = 0;    // requests refused by its rate limit
  VariantCounts& operator+=(const VariantCounts& other);
};

// One variant, or all those without a row of their own.
struct VariantRow {
  std::string name;
  int64_t device = 0, host = 0, disk = 0;  // variants that lie there
  int64_t failed = 0;                      // variants whose last load failed, or that cannot fit
  int64_t bytes = 0;                       // in memory
  double load_seconds = 0;                 // of the last load; of several variants: 0
  VariantCounts counts;
  void add(VariantState state, int64_t bytes);
};

struct RouterStats {
  CacheStats cache;
  CacheTierInfo device, host;
  CacheWaiting waiting;
  Histogram load_seconds{load_bounds()};           // of loads from the disk that succeeded
  Histogram promotion_seconds{load_bounds()};      // of copies to the device
  Histogram parked_seconds{load_bounds()};         // of requests that had to wait for their variant
  std::array<int64_t, kVariantStates> variants{};  // registered ones, by state
  int64_t registered = 0;
  int64_t fit = 0;               // so many of them fit on the device together, by their mean size
  std::vector<VariantRow> rows;  // by name
  VariantRow others;

  static std::vector<double> load_bounds();  // in seconds
};

}  // namespace deltad
