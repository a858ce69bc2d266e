#include "server/metrics.h"

#include <iterator>

#include "server/engine_metrics.h"
#include "server/pool_metrics.h"
#include "server/router_metrics.h"

namespace deltad {
namespace {

const std::vector<double> kPathBounds = {0.00005, 0.0001, 0.0002, 0.0003, 0.0005, 0.00075, 0.001,
                                         0.0015,  0.002,  0.005,  0.01,   0.05,   0.25,    1};
const std::vector<double> kLatencyBounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                            2.5,   5,    10,    20,   40,  80,   160, 320};
const std::vector<double> kPerTokenBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,
                                             0.15,  0.2,    0.25,  0.3,  0.4,   0.5,  1,     2.5};

}  // namespace

const char* route_name(Route route) {
  switch (route) {
    case Route::kChat:
      return "/v1/chat/completions";
    case Route::kCompletions:
      return "/v1/completions";
    case Route::kModels:
      return "/v1/models";
    case Route::kTokenize:
      return "/tokenize";
    case Route::kDetokenize:
      return "/detokenize";
    case Route::kHealth:
      return "/health";
    case Route::kReady:
      return "/ready";
    case Route::kMetrics:
      return "/metrics";
    case Route::kAdmin:
      return "/admin";
    case Route::kOther:
      return "other";
  }
  return "other";
}

std::string code_label(int code) {
  static constexpr const char* kGrpc[] = {"OK",
                                          "CANCELLED",
                                          "UNKNOWN",
                                          "INVALID_ARGUMENT",
                                          "DEADLINE_EXCEEDED",
                                          "NOT_FOUND",
                                          "ALREADY_EXISTS",
                                          "PERMISSION_DENIED",
                                          "RESOURCE_EXHAUSTED",
                                          "FAILED_PRECONDITION",
                                          "ABORTED",
                                          "OUT_OF_RANGE",
                                          "UNIMPLEMENTED",
                                          "INTERNAL",
                                          "UNAVAILABLE",
                                          "DATA_LOSS",
                                          "UNAUTHENTICATED"};
  if (code >= 0 && static_cast<size_t>(code) < std::size(kGrpc)) return kGrpc[code];
  return std::to_string(code);
}

ServerMetrics::ServerMetrics()
    : path_{Histogram(kPathBounds), Histogram(kPathBounds)},
      queue_(kLatencyBounds),
      first_token_(kLatencyBounds),
      per_token_(kPerTokenBounds),
      total_(kLatencyBounds) {}

void ServerMetrics::request_done(Route route, int code) {
  MutexLock lock(mutex_);
  ++requests_[{route, code}];
}

void ServerMetrics::path(PathPart part, double seconds) {
  MutexLock lock(mutex_);
  path_[static_cast<size_t>(part)].observe(seconds);
}

ServerMetrics::ModelCounts& ServerMetrics::ModelCounts::operator+=(const ModelCounts& other) {
  requests += other.requests;
  prompt_tokens += other.prompt_tokens;
  cached_tokens += other.cached_tokens;
  output_tokens += other.output_tokens;
  return *this;
}

ServerMetrics::ModelCounts& ServerMetrics::counts_of(const std::string& variant) {
  return variant.empty() ? base_ : variants_.of(variant);
}

void ServerMetrics::submitted(const std::string& variant) {
  MutexLock lock(mutex_);
  ++counts_of(variant).requests;
  ++all_.requests;
  ++in_use_[variant].waiting;
}

void ServerMetrics::started(const std::string& variant) {
  MutexLock lock(mutex_);
  InUse& in_use = in_use_[variant];
  --in_use.waiting;
  ++in_use.running;
}

void ServerMetrics::ended(const GenerationFigures& figures, bool had_started) {
  ModelCounts counts;
  counts.prompt_tokens = static_cast<uint64_t>(figures.prompt_tokens);
  counts.cached_tokens = static_cast<uint64_t>(figures.cached_tokens);
  counts.output_tokens = static_cast<uint64_t>(figures.output_tokens);
  MutexLock lock(mutex_);
  counts_of(figures.variant) += counts;
  all_ += counts;
  InUse& in_use = in_use_[figures.variant];
  --(had_started ? in_use.running : in_use.waiting);
  if (in_use.running == 0 && in_use.waiting == 0) in_use_.erase(figures.variant);
  if (figures.queue >= 0) queue_.observe(figures.queue);
  if (figures.first_token >= 0) {
    first_token_.observe(figures.first_token);
    if (figures.output_tokens > 1) {
      per_token_.observe((figures.total - figures.first_token) /
                         static_cast<double>(figures.output_tokens - 1));
    }
  }
  total_.observe(figures.total);
}

RequestFigures ServerMetrics::figures() const {
  MutexLock lock(mutex_);
  return {all_.requests, first_token_, per_token_};
}

std::vector<std::string> ServerMetrics::variants() const {
  MutexLock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, counts] : variants_.own()) names.push_back(name);
  return names;
}

void ServerMetrics::forget(const std::string& variant) {
  MutexLock lock(mutex_);
  variants_.forget(variant);
}

std::string ServerMetrics::render(const MetricsSnapshot& snapshot) const {
  PrometheusText out;
  out.family("deltad_ready", "gauge", "1 when requests are taken.");
  out.sample({}, snapshot.ready ? 1 : 0);
  MutexLock lock(mutex_);
  render_requests(out);
  if (snapshot.ready) {
    out.family("deltad_base_bytes", "gauge", "Memory of the base's weights.");
    out.sample({}, static_cast<double>(snapshot.base_bytes));
    render_engine(snapshot.engine, out);
    render_models(snapshot, out);
    render_cache(snapshot.router, snapshot.engine.waiting, out);
    render_variants(snapshot.router, out);
    if (snapshot.pool) render_pool(*snapshot.pool, out);
    render_vllm(snapshot, out);
  }
  return out.text();
}

void ServerMetrics::render_requests(PrometheusText& out) const {
  out.family("deltad_requests_total", "counter", "HTTP requests answered.");
  for (const auto& [key, count] : requests_) {
    out.sample({{"endpoint", route_name(key.first)}, {"code", code_label(key.second)}},
               static_cast<double>(count));
  }
  out.family("deltad_prompt_tokens_total", "counter", "Tokens of prompts of ended requests.");
  out.sample({}, static_cast<double>(all_.prompt_tokens));
  out.family("deltad_cached_tokens_total", "counter",
             "Of them, tokens taken from the prefix cache.");
  out.sample({}, static_cast<double>(all_.cached_tokens));
  out.family("deltad_output_tokens_total", "counter", "Tokens generated for ended requests.");
  out.sample({}, static_cast<double>(all_.output_tokens));
  out.family("deltad_queue_seconds", "histogram", "From received to the first step.");
  out.histogram({}, queue_);
  out.family("deltad_time_to_first_token_seconds", "histogram",
             "From received to the first token.");
  out.histogram({}, first_token_);
  out.family("deltad_time_per_output_token_seconds", "histogram",
             "(end - first token) / (tokens - 1) of a request.");
  out.histogram({}, per_token_);
  out.family("deltad_request_seconds", "histogram", "From received to the end.");
  out.histogram({}, total_);
  out.family("deltad_http_path_seconds", "histogram",
             "Time in the HTTP layer: submit = request parsed to submitted, write = token event "
             "to bytes written.");
  out.histogram({{"part", "submit"}}, path_[static_cast<size_t>(PathPart::kSubmit)]);
  out.histogram({{"part", "write"}}, path_[static_cast<size_t>(PathPart::kWrite)]);
}

// The base, the variants that have a row here or with the router, and all others together.
std::vector<ServerMetrics::ModelRow> ServerMetrics::model_rows(
    const MetricsSnapshot& snapshot) const {
  std::map<std::string, ModelCounts> own;
  for (const VariantRow& row : snapshot.router.rows) own[row.name];
  for (const auto& [name, counts] : variants_.own()) own[name] = counts;
  std::vector<ModelRow> rows = {{snapshot.base_name, base_, {}}};
  for (const auto& [name, counts] : own) rows.push_back({name, counts, {}});
  rows.push_back({kOtherVariants, variants_.others(), {}});
  for (const auto& [name, in_use] : in_use_) {
    ModelRow* row = &rows.back();
    if (name.empty())
      row = &rows.front();
    else if (const auto it = own.find(name); it != own.end())
      row = &rows[1 + static_cast<size_t>(std::distance(own.begin(), it))];
    row->in_use.waiting += in_use.waiting;
    row->in_use.running += in_use.running;
  }
  return rows;
}

void ServerMetrics::render_models(const MetricsSnapshot& snapshot, PrometheusText& out) const {
  const std::vector<ModelRow> rows = model_rows(snapshot);
  const auto table = [&](const char* name, const char* type, const char* help, auto value) {
    out.family(name, type, help);
    for (const ModelRow& row : rows) {
      out.sample({{"model", row.name}}, static_cast<double>(value(row)));
    }
  };
  table("deltad_model_requests_total", "counter", "Sequences submitted, by model.",
        [](const ModelRow& row) { return row.counts.requests; });
  table("deltad_model_prompt_tokens_total", "counter", "Prompt tokens, by model.",
        [](const ModelRow& row) { return row.counts.prompt_tokens; });
  table("deltad_model_output_tokens_total", "counter", "Generated tokens, by model.",
        [](const ModelRow& row) { return row.counts.output_tokens; });
  table("deltad_model_running", "gauge", "Sequences that have a token, by model.",
        [](const ModelRow& row) { return row.in_use.running; });
  table("deltad_model_waiting", "gauge", "Sequences without a token yet, by model.",
        [](const ModelRow& row) { return row.in_use.waiting; });
}

void ServerMetrics::render_vllm(const MetricsSnapshot& snapshot, PrometheusText& out) const {
  std::string running, waiting;
  for (const auto& [name, in_use] : in_use_) {
    if (name.empty()) continue;
    if (in_use.running > 0) running += (running.empty() ? "" : ",") + name;
    if (in_use.waiting > 0) waiting += (waiting.empty() ? "" : ",") + name;
  }
  render_vllm_names(snapshot, running, waiting, out);
}

}  // namespace deltad
