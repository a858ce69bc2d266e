// VariantLoader: how variants come into memory. An interface, so that the router's tests load
// nothing; files_loader is the one that deltad uses. Called by the router's threads, several at
// once.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "base/status.h"
#include "delta/variant.h"
#include "model/weight_table.h"
#include "router/delta_cache.h"

namespace deltad {

struct VariantSize {
  int64_t bytes = 0;   // that it will take in memory
  std::string digest;  // as the file claims it; "": unknown
};

class VariantLoader {
 public:
  virtual ~VariantLoader() = default;
  // Reads the header only.
  virtual Result<VariantSize> measure(const std::string& path) = 0;
  // max_bytes: what was set aside for it; needing more is an error before memory is taken.
  // cancelled: polled; kCancelled, and nothing is left in memory.
  virtual Result<VariantRef> load(const std::string& name, const std::string& path, Tier tier,
                                  int64_t max_bytes, const std::atomic<bool>& cancelled) = 0;
  // A copy in the other tier.
  virtual Result<VariantRef> copy(const VariantRef& variant, Tier to,
                                  const std::atomic<bool>& cancelled) = 0;
};

// Loads variant files into the backend, where device and host are one. table and backend outlive
// it.
std::unique_ptr<VariantLoader> files_loader(const WeightTable& table, Backend& backend,
                                            std::string base_digest, std::string architecture);

}  // namespace deltad
