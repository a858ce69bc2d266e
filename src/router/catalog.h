// Catalog: the variants that can be asked for by name, and where each is in its life. Made at start
// from the config; the set of names is fixed, the state of an entry is the router's (and under its
// mutex).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "delta/variant.h"
#include "text/text_assets.h"

namespace deltad {

enum class VariantState { kRegistered, kLoading, kResident, kFailed };
const char* variant_state_name(VariantState state);

struct VariantInfo {  // a snapshot, for /v1/models and /metrics
  std::string name, path, digest;
  VariantState state = VariantState::kRegistered;
  size_t bytes = 0;   // resident
  std::string error;  // of the last load
  uint64_t loads = 0;
  double load_seconds = 0;
  int64_t created = 0;  // unix seconds
};

struct VariantSource {
  std::string name;
  std::string path;  // a *.delta.safetensors file, or a folder with one
};

struct CatalogEntry {
  // Fixed when registered.
  std::string name, path;
  std::shared_ptr<const TextAssets> text;  // its own, else the base's
  int64_t created = 0;

  // The router's, under its mutex.
  VariantState state = VariantState::kRegistered;
  VariantRef variant;  // kResident
  Status error;        // of the last load
  TimePoint next_try{};
  double back_off = 0;  // seconds; doubles with each failure
  uint64_t loads = 0;
  double load_seconds = 0;
};

class Catalog {
 public:
  // Names must be unique, not empty, without control characters, and not the base's; paths must
  // exist. Reads the small text files of variant folders. kInvalidArgument names the variant.
  static Result<Catalog> make(const std::string& base_name,
                              const std::vector<VariantSource>& sources,
                              const std::shared_ptr<const TextAssets>& base_text);

  std::shared_ptr<CatalogEntry> find(const std::string& name) const;  // null if there is none
  const std::map<std::string, std::shared_ptr<CatalogEntry>>& entries() const { return entries_; }
  // "The model 'x' does not exist", and the names that do if they are few.
  Status unknown(const std::string& name) const;

 private:
  std::string base_name_;
  std::map<std::string, std::shared_ptr<CatalogEntry>> entries_;
};

}  // namespace deltad
