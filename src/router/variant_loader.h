// VariantLoader: how variants come into memory. An interface, so that the router's tests load
// nothing; files_loader is the one that deltad uses. Called by the router's threads, several at
// once.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "base/status.h"
#include "delta/loader.h"
#include "model/weight_table.h"
#include "router/delta_cache.h"

namespace deltad {

class VariantLoader {
 public:
  virtual ~VariantLoader() = default;
  // Reads the header only.
  virtual Result<VariantSize> measure(const std::string& path) = 0;
  // Reads all of it, as load does, and keeps nothing but its digest ("": a loader without files).
  virtual Result<std::string> verify(const std::string&, const std::atomic<bool>&) {
    return std::string();
  }
  // max_bytes: what was set aside; one that needs more is kResourceExhausted. cancelled: polled;
  // kCancelled. After an error nothing is left in memory.
  virtual Result<VariantRef> load(const std::string& name, const std::string& path, Tier tier,
                                  int64_t max_bytes, const std::atomic<bool>& cancelled) = 0;
  // The same in the time that others leave: for a variant that only the daemon itself waits for.
  virtual Result<VariantRef> load_behind_others(const std::string& name, const std::string& path,
                                                Tier tier, int64_t max_bytes,
                                                const std::atomic<bool>& cancelled) {
    return load(name, path, tier, max_bytes, cancelled);
  }
  // Whether load() can fill the host tier; else only what leaves the device comes there.
  virtual bool loads_to_host() const { return true; }
  // Whether a copy on the host may stand for what now lies on the disk.
  virtual bool is_current(const Variant&) { return true; }
  // A copy in the other tier. cancelled: of one to the device; polled.
  virtual Result<VariantRef> copy(const VariantRef& variant, Tier to,
                                  const std::atomic<bool>& cancelled) = 0;
  // What all loads that begin from now on may read together in a second; 0: no cap.
  virtual void set_rate(int64_t) {}
};

struct FilesLoaderOptions {
  std::string base_digest, architecture;  // of the running base
  int64_t bytes_per_second = 0;           // of all loads together; 0: no cap
};

// Loads variant files into the backend, and copies what leaves its device to the host's memory that
// the store has reserved, if it has. table and store outlive it.
std::unique_ptr<VariantLoader> files_loader(const WeightTable& table, WeightStore& store,
                                            const FilesLoaderOptions& options);

}  // namespace deltad
