// Router: takes an API request's parts, resolves its variant once, waits for that variant's load
// (one load however many wait), and submits to the engine. Any thread; never blocks on a disk.
// Loads run on loader threads. Eviction and tiers come with the delta cache; their place is between
// resolve and submit, where a request gets its VariantRef.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "router/catalog.h"

namespace deltad {

// What a model name stands for, before any load: enough to tokenize, render and check.
struct ModelHandle {
  std::string name;  // as registered
  bool is_base = false;
  std::shared_ptr<const TextAssets> text;  // the variant's own, else the base's
  std::shared_ptr<CatalogEntry> entry;     // null for the base
};

struct RouterOptions {
  std::string base_name;
  std::string base_digest;
  std::string architecture;
  int loader_threads = 1;
  int32_t max_parked = 4096;   // requests waiting for loads
  double retry_seconds = 1.0;  // first back-off after a failed load; doubles up to 60
};

class Router {
 public:
  // Builds the catalog from the sources (errors as Catalog::make). table, backend and engine
  // outlive the router.
  static Result<std::unique_ptr<Router>> make(const RouterOptions& options,
                                              const std::vector<VariantSource>& variants,
                                              std::shared_ptr<const TextAssets> base_text,
                                              const WeightTable& table, Backend& backend,
                                              Engine& engine);
  virtual ~Router() = default;

  // "" and the base's name mean the base. kNotFound lists the names that exist if they are few.
  virtual Result<ModelHandle> resolve(const std::string& model) = 0;

  // request.variant is filled in here. A request that cannot ever run is refused at once; a load
  // that fails ends the request with a kFinished/kError event (kUnavailable, with the reason). The
  // ticket cancels it wherever it is.
  using Ticket = uint64_t;
  virtual Result<Ticket> submit(const ModelHandle& model, Request request) = 0;
  virtual void cancel(Ticket ticket) = 0;  // unknown tickets are ignored
  // Refuses new requests; returns when all are done, or at the deadline, when the rest is
  // cancelled.
  virtual void shutdown(TimePoint deadline) = 0;

  virtual std::vector<VariantInfo> variants() const = 0;
  virtual const std::string& base_name() const = 0;
};

}  // namespace deltad
