#include "server/observe/request_record.h"

#include <utility>

#include "base/log.h"
#include "server/observe/observer.h"
#include "server/observe/request_spans.h"

namespace deltad {
namespace {

constexpr int kDropped = 500;

bool is_probe(Route route) {
  return route == Route::kHealth || route == Route::kReady || route == Route::kMetrics;
}

void keep_earlier(TimePoint& kept, TimePoint at) {
  if (at != TimePoint{} && (kept == TimePoint{} || at < kept)) kept = at;
}

LogField text_field(const char* name, const std::string& text) {
  if (text.empty()) return {name, {}};
  return {name, text};
}

LogField milliseconds(const char* name, double seconds) {
  if (seconds < 0) return {name, {}};
  return {name, seconds * 1e3};
}

}  // namespace

RequestRecord::RequestRecord(Observer& observer, Route route, std::string id, TimePoint received,
                             std::optional<TraceContext> trace, SpanId parent)
    : observer_(observer),
      route_(route),
      id_(std::move(id)),
      received_(received),
      trace_(std::move(trace)),
      parent_(parent) {}

RequestRecord::~RequestRecord() { end(kDropped); }

ServerMetrics& RequestRecord::metrics() const { return observer_.metrics(); }

double RequestRecord::since_received(TimePoint at) const {
  return at == TimePoint{} ? -1 : seconds(at - received_);
}

void RequestRecord::token(const std::string& variant, TimePoint last, TimePoint at) {
  if (last == TimePoint{})
    metrics().started(variant);
  else
    metrics().token_gap(seconds(at - last));
}

void RequestRecord::sequence_ended(const std::string& variant, const TokenEvent& event,
                                   bool had_token) {
  GenerationFigures figures;
  figures.variant = variant;
  figures.prompt_tokens = event.prompt_tokens;
  figures.cached_tokens = event.cached_tokens;
  figures.output_tokens = event.output_tokens;
  figures.queue = since_received(event.admitted);
  figures.first_token = since_received(event.first_token);
  figures.total = seconds(Clock::real().now() - received_);
  metrics().ended(figures, had_token);

  keep_earlier(times_.parked, event.parked);
  keep_earlier(times_.unparked, event.unparked);
  keep_earlier(times_.admitted, event.admitted);
  keep_earlier(times_.first_token, event.first_token);
}

void RequestRecord::end(int code) {
  if (ended_) return;
  ended_ = true;
  ended_at_ = Clock::real().now();
  metrics().request_done(route_, code);
  if (error == kModelNotFound) metrics().unknown_model();
  write_line(code);
  if (trace_ && !is_probe(route_)) export_spans(code);
}

void RequestRecord::write_line(int code) const {
  const LogLevel level = is_probe(route_) ? LogLevel::kDebug : LogLevel::kInfo;
  if (!log_enabled(level)) return;
  std::vector<LogField> fields = {{"id", id_},
                                  {"endpoint", std::string(route_name(route_))},
                                  text_field("key", caller),
                                  text_field("variant", model),
                                  {"status", code_label(code)},
                                  {"prompt_tokens", prompt_tokens},
                                  {"cached_tokens", cached_tokens},
                                  {"output_tokens", output_tokens},
                                  milliseconds("queue_ms", since_received(times_.admitted)),
                                  milliseconds("ttft_ms", since_received(times_.first_token)),
                                  milliseconds("total_ms", since_received(ended_at_)),
                                  text_field("finish", finish)};
  if (!error.empty()) fields.push_back({"error", error});
  if (trace_) fields.push_back({"trace_id", hex_of(trace_->trace)});
  log_event(level, "request", fields);
}

void RequestRecord::export_spans(int code) const {
  RequestTimes times;
  times.received = received_;
  times.parked = times_.parked;
  times.unparked = times_.unparked;
  times.admitted = times_.admitted;
  times.first_token = times_.first_token;
  times.ended = ended_at_;
  observer_.spans()->add(request_spans(*this, code, *trace_, parent_, times));
}

}  // namespace deltad
