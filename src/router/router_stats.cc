#include "router/router_stats.h"

namespace deltad {

VariantCounts& VariantCounts::operator+=(const VariantCounts& other) {
  misses += other.misses;
  loads += other.loads;
  load_failures += other.load_failures;
  evictions += other.evictions;
  limited += other.limited;
  return *this;
}

void VariantRow::add(VariantState state, int64_t resident_bytes) {
  switch (state) {
    case VariantState::kResident:
      ++device;
      break;
    case VariantState::kHost:
      ++host;
      break;
    case VariantState::kFailed:
      ++failed;
      ++disk;
      break;
    case VariantState::kRegistered:
    case VariantState::kLoading:
      ++disk;
      break;
  }
  bytes += resident_bytes;
}

// From a copy in memory to a large variant from a slow disk.
std::vector<double> RouterStats::load_bounds() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120};
}

}  // namespace deltad
