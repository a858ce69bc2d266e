// ServerMetrics: what the server counts and measures, and the page that Prometheus reads
// (docs/metrics.md). Labels are bounded: routes and statuses are few, and so are the variants that
// are counted each by itself. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bounded_counts.h"
#include "base/histogram.h"
#include "base/mutex.h"
#include "engine/engine.h"
#include "router/router_stats.h"
#include "server/pool/pool_service.h"
#include "server/prometheus_text.h"

namespace deltad {

enum class Route {
  kChat,
  kCompletions,
  kModels,
  kTokenize,
  kDetokenize,
  kHealth,
  kReady,
  kMetrics,
  kAdmin,  // all of the admin listener
  kOther
};
const char* route_name(Route route);
// "200", or of a gRPC code (0 to 16) "OK", "NOT_FOUND".
std::string code_label(int code);

// The parts of a request's way through the server that are the HTTP path's own.
enum class PathPart {
  kSubmit,  // request parsed → all of it submitted
  kWrite    // token event → its bytes with the operating system
};

// What the admin API's state shows of requests; cumulative, as all that is counted here.
struct RequestFigures {
  uint64_t requests = 0;             // engine requests submitted
  Histogram first_token, per_token;  // seconds
};

// One engine request that has ended.
struct GenerationFigures {
  std::string variant;  // "": the base
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  // Seconds since the request was received; negative if it never got there.
  double queue = -1, first_token = -1, total = 0;
};

struct MetricsSnapshot {  // of what others count
  bool ready = false;
  std::string base_name;
  size_t base_bytes = 0;  // resident weights
  EngineStats engine;
  RouterStats router;
  std::optional<PoolFigures> pool;  // none: no adapter pool
};

class ServerMetrics {
 public:
  ServerMetrics();

  // code: the HTTP status, or gRPC's code.
  void request_done(Route route, int code) EXCLUDES(mutex_);
  void path(PathPart part, double seconds) EXCLUDES(mutex_);
  // An engine request of this variant: submitted, got its first token, ended.
  void submitted(const std::string& variant) EXCLUDES(mutex_);
  void started(const std::string& variant) EXCLUDES(mutex_);
  void ended(const GenerationFigures& figures, bool had_started) EXCLUDES(mutex_);

  // The variants that are counted each by itself; those that are no longer registered are to be
  // forgotten.
  std::vector<std::string> variants() const EXCLUDES(mutex_);
  void forget(const std::string& variant) EXCLUDES(mutex_);

  RequestFigures figures() const EXCLUDES(mutex_);
  std::string render(const MetricsSnapshot& snapshot) const EXCLUDES(mutex_);

 private:
  struct ModelCounts {
    uint64_t requests = 0, prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
    ModelCounts& operator+=(const ModelCounts& other);
  };
  struct InUse {
    int64_t waiting = 0, running = 0;
  };
  struct ModelRow {
    std::string name;
    ModelCounts counts;
    InUse in_use;
  };

  ModelCounts& counts_of(const std::string& variant) REQUIRES(mutex_);
  std::vector<ModelRow> model_rows(const MetricsSnapshot& snapshot) const REQUIRES(mutex_);
  void render_requests(PrometheusText& out) const REQUIRES(mutex_);
  void render_models(const MetricsSnapshot& snapshot, PrometheusText& out) const REQUIRES(mutex_);
  void render_vllm(const MetricsSnapshot& snapshot, PrometheusText& out) const REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<std::pair<Route, int>, uint64_t> requests_ GUARDED_BY(mutex_);
  ModelCounts base_ GUARDED_BY(mutex_), all_ GUARDED_BY(mutex_);
  BoundedCounts<ModelCounts> variants_ GUARDED_BY(mutex_){kMostVariantSeries};
  std::map<std::string, InUse> in_use_ GUARDED_BY(mutex_);  // those that are not zero; "": the base
  std::array<Histogram, 2> path_ GUARDED_BY(mutex_);
  Histogram queue_ GUARDED_BY(mutex_), first_token_ GUARDED_BY(mutex_),
      per_token_ GUARDED_BY(mutex_), total_ GUARDED_BY(mutex_);
};

}  // namespace deltad
