// Loads a variant file or folder into a backend. Called by loader threads.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "delta/variant.h"
#include "model/weight_table.h"

namespace deltad {

struct VariantLoadOptions {
  std::string base_digest;   // of the running base; "" skips the check
  std::string architecture;  // of the running base
  int threads = 1;
  const std::atomic<bool>* cancelled = nullptr;  // polled; kCancelled
};

// Checks everything DESIGN "Loading checks" names while reading (version, architecture, shapes,
// base digest, file digest, finite α); an error names the file, the tensor and what was expected.
Result<VariantRef> load_variant(const std::string& name, const std::string& path,
                                const WeightTable& table, Backend& backend,
                                const VariantLoadOptions& options);

}  // namespace deltad
