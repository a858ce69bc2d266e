// Router: takes an API request's parts, resolves its variant once, waits for that variant's load
// (one load however many wait), and submits to the engine. Any thread; never blocks on a disk.
// Eviction and tiers come with the delta cache; the place for them is between resolve and submit
// (acquire).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "router/catalog.h"

namespace deltad {

struct VariantSource {
  std::string name, path;
};

// What a model name stands for, before any load: enough to tokenize, render and check.
struct ModelHandle {
  std::string name;  // as asked
  bool is_base = false;
  std::shared_ptr<const TextAssets> text;  // the variant's own, else the base's
  std::shared_ptr<void> entry;             // the catalog's; keeps it alive
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
  // Checks that names are unique and none is the base's, and that each path exists; reads the small
  // text files of variant folders. kInvalidArgument names the variant.
  static Result<std::unique_ptr<Router>> make(const RouterOptions& options,
                                              const std::vector<VariantSource>& variants,
                                              std::shared_ptr<const TextAssets> base_text,
                                              const WeightTable& table, Backend& backend,
                                              Engine& engine);
  virtual ~Router() = default;

  // "" and the base's name mean the base. kNotFound lists the names that exist if they are few.
  virtual Result<ModelHandle> resolve(const std::string& model) = 0;

  // request.variant is filled in here. A load that fails ends the request with a kFinished/kError
  // event (kUnavailable, with the reason). The returned ticket cancels it wherever it is.
  using Ticket = uint64_t;
  virtual Result<Ticket> submit(const ModelHandle& model, Request request) = 0;
  virtual void cancel(Ticket ticket) = 0;
  virtual void shutdown(TimePoint deadline) = 0;  // drains the parked, then the engine

  virtual std::vector<VariantInfo> variants() const = 0;
  virtual const std::string& base_name() const = 0;
};

}  // namespace deltad
