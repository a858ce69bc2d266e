// ServerMetrics: what the server counts and measures, and the page that Prometheus reads. Labels
// are bounded: routes and statuses are few, and variants are those of the catalog. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/engine.h"
#include "router/catalog.h"
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
  kOther
};
const char* route_name(Route route);

// The parts of a request's way through the server that are the HTTP path's own.
enum class PathPart {
  kSubmit,  // request parsed → all of it submitted
  kWrite    // token event → its bytes with the operating system
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
  std::vector<VariantInfo> variants;
  int64_t device_used = 0, host_used = 0;  // bytes, by variants
};

class ServerMetrics {
 public:
  ServerMetrics();

  void request_done(Route route, int status) EXCLUDES(mutex_);
  void path(PathPart part, double seconds) EXCLUDES(mutex_);
  // An engine request of this variant: submitted, got its first token, ended.
  void submitted(const std::string& variant) EXCLUDES(mutex_);
  void started(const std::string& variant) EXCLUDES(mutex_);
  void ended(const GenerationFigures& figures, bool had_started) EXCLUDES(mutex_);

  std::string render(const MetricsSnapshot& snapshot) const EXCLUDES(mutex_);

 private:
  struct OfVariant {
    uint64_t requests = 0, prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
    int64_t waiting = 0, running = 0;
  };

  OfVariant of(const std::string& variant) const REQUIRES(mutex_);
  void render_requests(PrometheusText& out) const REQUIRES(mutex_);
  void render_variants(const MetricsSnapshot& snapshot, PrometheusText& out) const REQUIRES(mutex_);
  void render_vllm(const MetricsSnapshot& snapshot, PrometheusText& out) const REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<std::pair<Route, int>, uint64_t> requests_ GUARDED_BY(mutex_);
  std::map<std::string, OfVariant> variants_ GUARDED_BY(mutex_);
  std::array<Histogram, 2> path_ GUARDED_BY(mutex_);
  Histogram queue_ GUARDED_BY(mutex_), first_token_ GUARDED_BY(mutex_),
      per_token_ GUARDED_BY(mutex_), total_ GUARDED_BY(mutex_);
};

}  // namespace deltad
