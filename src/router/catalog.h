// Catalog: the variants that can be asked for by name, and where each is in its life. Owned by
// main; any thread. For now variants come from the config, are loaded on first use by loader
// threads, and stay.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "delta/variant.h"
#include "text/text_assets.h"

namespace deltad {

enum class VariantState { kRegistered, kLoading, kResident, kFailed };
const char* variant_state_name(VariantState state);

struct VariantInfo {  // a snapshot, for /v1/models and /metrics
  std::string name, path, digest;
  VariantState state = VariantState::kRegistered;
  size_t bytes = 0;
  std::string error;  // of the last load
  uint64_t loads = 0;
  double load_seconds = 0;
  int64_t created = 0;  // unix seconds
};

}  // namespace deltad
