#include "server/metrics.h"

#include "server/engine_metrics.h"

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
    case Route::kOther:
      return "other";
  }
  return "other";
}

ServerMetrics::ServerMetrics()
    : path_{Histogram(kPathBounds), Histogram(kPathBounds)},
      queue_(kLatencyBounds),
      first_token_(kLatencyBounds),
      per_token_(kPerTokenBounds),
      total_(kLatencyBounds) {}

void ServerMetrics::request_done(Route route, int status) {
  MutexLock lock(mutex_);
  ++requests_[{route, status}];
}

void ServerMetrics::path(PathPart part, double seconds) {
  MutexLock lock(mutex_);
  path_[static_cast<size_t>(part)].observe(seconds);
}

void ServerMetrics::submitted(const std::string& variant) {
  MutexLock lock(mutex_);
  OfVariant& of = variants_[variant];
  ++of.requests;
  ++of.waiting;
}

void ServerMetrics::started(const std::string& variant) {
  MutexLock lock(mutex_);
  OfVariant& of = variants_[variant];
  --of.waiting;
  ++of.running;
}

void ServerMetrics::ended(const GenerationFigures& figures, bool had_started) {
  MutexLock lock(mutex_);
  OfVariant& of = variants_[figures.variant];
  --(had_started ? of.running : of.waiting);
  of.prompt_tokens += static_cast<uint64_t>(figures.prompt_tokens);
  of.cached_tokens += static_cast<uint64_t>(figures.cached_tokens);
  of.output_tokens += static_cast<uint64_t>(figures.output_tokens);
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
    render_variants(snapshot, out);
    render_vllm(snapshot, out);
  }
  return out.text();
}

void ServerMetrics::render_requests(PrometheusText& out) const {
  out.family("deltad_requests_total", "counter", "HTTP requests answered.");
  for (const auto& [key, count] : requests_) {
    out.sample({{"endpoint", route_name(key.first)}, {"code", std::to_string(key.second)}},
               static_cast<double>(count));
  }
  OfVariant sum;
  for (const auto& [name, of] : variants_) {
    sum.prompt_tokens += of.prompt_tokens;
    sum.cached_tokens += of.cached_tokens;
    sum.output_tokens += of.output_tokens;
  }
  out.family("deltad_prompt_tokens_total", "counter", "Tokens of prompts of ended requests.");
  out.sample({}, static_cast<double>(sum.prompt_tokens));
  out.family("deltad_cached_tokens_total", "counter",
             "Of them, tokens taken from the prefix cache.");
  out.sample({}, static_cast<double>(sum.cached_tokens));
  out.family("deltad_output_tokens_total", "counter", "Tokens generated for ended requests.");
  out.sample({}, static_cast<double>(sum.output_tokens));
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

ServerMetrics::OfVariant ServerMetrics::of(const std::string& variant) const {
  const auto it = variants_.find(variant);
  return it == variants_.end() ? OfVariant() : it->second;
}

void ServerMetrics::render_variants(const MetricsSnapshot& snapshot, PrometheusText& out) const {
  std::vector<std::pair<std::string, OfVariant>> rows = {{snapshot.base_name, of("")}};
  for (const VariantInfo& info : snapshot.variants) rows.emplace_back(info.name, of(info.name));
  const auto table = [&](const char* name, const char* type, const char* help, auto value) {
    out.family(name, type, help);
    for (const auto& [model, row] : rows) {
      out.sample({{"model", model}}, static_cast<double>(value(row)));
    }
  };
  table("deltad_model_requests_total", "counter", "Sequences submitted, by model.",
        [](const OfVariant& row) { return row.requests; });
  table("deltad_model_prompt_tokens_total", "counter", "Prompt tokens, by model.",
        [](const OfVariant& row) { return row.prompt_tokens; });
  table("deltad_model_output_tokens_total", "counter", "Generated tokens, by model.",
        [](const OfVariant& row) { return row.output_tokens; });
  table("deltad_model_running", "gauge", "Sequences that have a token, by model.",
        [](const OfVariant& row) { return row.running; });
  table("deltad_model_waiting", "gauge", "Sequences without a token yet, by model.",
        [](const OfVariant& row) { return row.waiting; });
  render_catalog(snapshot.variants, out);
  out.family("deltad_cache_used_bytes", "gauge",
             "Memory of variants: loaded, being loaded and not yet given back.");
  out.sample({{"tier", "device"}}, static_cast<double>(snapshot.device_used));
  out.sample({{"tier", "host"}}, static_cast<double>(snapshot.host_used));
}

void ServerMetrics::render_vllm(const MetricsSnapshot& snapshot, PrometheusText& out) const {
  std::string running, waiting;
  for (const VariantInfo& info : snapshot.variants) {
    const OfVariant row = of(info.name);
    if (row.running > 0) running += (running.empty() ? "" : ",") + info.name;
    if (row.waiting > 0) waiting += (waiting.empty() ? "" : ",") + info.name;
  }
  render_vllm_names(snapshot, running, waiting, out);
}

}  // namespace deltad
