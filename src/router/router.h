// Router: takes an API request's parts, resolves its variant once, lets it wait for that variant
// (one load however many wait), and submits to the engine. Any thread; never blocks on a disk,
// except where a variant is added or replaced. What it decides is in router_core.h; here are the
// threads: loader threads read variants, and a service thread frees memory and keeps deadlines.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "router/catalog.h"
#include "router/router_core.h"
#include "router/variant_loader.h"

namespace deltad {

struct RouterOptions {
  std::string base_name;
  std::string base_digest;
  std::string architecture;
  int loader_threads = 2;
  int64_t bytes_per_second = 0;  // that all loads together may read; 0: no cap
  double retry_seconds = 1.0;    // first back-off after a failed load; doubles up to 60
  // Memory for variants, loads in progress included. 0: half of what the process may still use when
  // the router is made.
  int64_t cache_bytes = 0;
  // Of the host, for copies of variants that left a device, which come back from there without
  // being read again. kAutomaticBytes: from both memories, or none where a loader is given.
  int64_t host_bytes = kAutomaticBytes;
  double half_life_seconds = 200;  // of the request counts that say who stays
  double age_bound_seconds = 10;   // a waiting variant takes the place of a busy one after that
  // Requests that may wait for their first token. 0: 4352 in total, a quarter of the total for one
  // variant.
  int64_t max_waiting = 0, max_waiting_per_variant = 0;
};

class Router {
 public:
  // Builds the catalog from the sources (errors as Catalog::prepare). table, store and engine
  // outlive the router.
  static Result<std::unique_ptr<Router>> make(const RouterOptions& options,
                                              const std::vector<VariantSource>& variants,
                                              std::shared_ptr<const TextAssets> base_text,
                                              const WeightTable& table, WeightStore& store,
                                              Engine& engine);
  static Result<std::unique_ptr<Router>> make(const RouterOptions& options,
                                              const std::vector<VariantSource>& variants,
                                              std::shared_ptr<const TextAssets> base_text,
                                              std::unique_ptr<VariantLoader> loader,
                                              Engine& engine);
  virtual ~Router() = default;

  // "" and the base's name mean the base. kNotFound lists the names that exist if they are few.
  virtual Result<ModelHandle> resolve(const std::string& model) = 0;

  // request.variant is filled in here. A request that cannot ever run is refused at once; one too
  // many with kResourceExhausted and retry_after(). A load that fails ends the request with a
  // kFinished/kError event (kUnavailable, with the reason), a deadline that passes while it waits
  // with kDeadlineExceeded. The ticket cancels it wherever it is.
  using Ticket = deltad::Ticket;
  virtual Result<Ticket> submit(const ModelHandle& model, Request request) = 0;
  virtual void cancel(Ticket ticket) = 0;  // unknown tickets are ignored

  // At run time. add reads the variant's header and text files, replace also the whole rest: a
  // broken one is refused and leaves everything as it was. After replace new requests get the new
  // version and running ones end on the old, whose memory is given back then; the same after
  // remove. A limit belongs to the name: a replacement that brings none keeps it.
  virtual Status add(const VariantSource& source) = 0;      // kConflict if the name is taken
  virtual Status replace(const VariantSource& source) = 0;  // kNotFound if there is none
  virtual Status remove(const std::string& name) = 0;
  virtual Status pin(const std::string& name) = 0;  // loads it, and never evicts it
  virtual Status unpin(const std::string& name) = 0;
  virtual Status prefetch(const std::string& name) = 0;  // begins to load it
  virtual Status evict(const std::string& name) = 0;     // kConflict while it is in use
  virtual Status set_limit(const std::string& name, const VariantLimit& limit) = 0;

  // For the adapter pool. publish: what it serves from now on, in place of what it served before,
  // all at once; each name behaves like a variant that is replaced, or removed where it is missing.
  // Nobody else can add, replace or remove these names. kConflict if one is a variant's.
  struct Publication {
    std::vector<VariantSource> members;
    std::map<std::string, std::string> names;  // → the name of the member that answers
  };
  virtual Status publish(const Publication& publication) = 0;
  // Keeps a name for publish() until it is released.
  virtual Status reserve(const std::string& name) = 0;
  virtual void release_name(const std::string& name) = 0;
  // A variant under no name: loaded when asked for, in the cache like any other, and gone when it
  // is closed and its last request has ended. The source's name is for messages.
  virtual Result<ModelHandle> open_private(const VariantSource& source) = 0;
  virtual void close_private(const ModelHandle& model) = 0;

  virtual Status set_cache_bytes(int64_t bytes) = 0;
  // As in the options.
  virtual void set_queue_bounds(int64_t total, int64_t per_variant) = 0;
  virtual void set_load_rate(int64_t bytes_per_second) = 0;

  // Refuses new requests; returns when all are done, or at the deadline, when the rest is
  // cancelled.
  virtual void shutdown(TimePoint deadline) = 0;

  virtual Result<VariantInfo> variant(const std::string& name) const = 0;
  virtual std::vector<VariantInfo> variants() const = 0;
  virtual RouterStats stats() const = 0;  // for /metrics
  virtual CacheTierInfo cache_tier(Tier tier) const = 0;
  virtual const std::string& base_name() const = 0;
};

}  // namespace deltad
