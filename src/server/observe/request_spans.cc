#include "server/observe/request_spans.h"

#include <chrono>
#include <string>

#include "server/observe/request_record.h"

namespace deltad {
namespace {

// Steady time as time since 1970.
class UnixTime {
 public:
  uint64_t ns(TimePoint at) const {
    using std::chrono::nanoseconds;
    const auto since_1970 = wall_.time_since_epoch() + (at - steady_);
    return static_cast<uint64_t>(std::chrono::duration_cast<nanoseconds>(since_1970).count());
  }

 private:
  const std::chrono::system_clock::time_point wall_ = std::chrono::system_clock::now();
  const TimePoint steady_ = Clock::real().now();
};

// A server's fault, in the terms of either protocol: only that makes a span fail.
bool is_failure(int code) {
  switch (code) {
    case 2:   // UNKNOWN
    case 4:   // DEADLINE_EXCEEDED
    case 12:  // UNIMPLEMENTED
    case 13:  // INTERNAL
    case 14:  // UNAVAILABLE
    case 15:  // DATA_LOSS
      return true;
    default:
      return code >= 500;
  }
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

}  // namespace

std::vector<Span> request_spans(const RequestRecord& record, int code, const TraceContext& context,
                                const SpanId& parent, const RequestTimes& times) {
  const UnixTime unix_time;
  Span own;
  own.context = context;
  own.parent = parent;
  own.name = route_name(record.route());
  own.kind = Span::Kind::kServer;
  own.start_ns = unix_time.ns(times.received);
  own.end_ns = unix_time.ns(times.ended);
  own.failed = is_failure(code);
  if (own.failed) own.message = record.error;
  own.attributes = {{"deltad.request.id", record.id()}};
  const bool grpc = code < 100;
  own.attributes.emplace_back(grpc ? "rpc.grpc.status_code" : "http.response.status_code",
                              int64_t{code});
  if (!record.error.empty()) own.attributes.emplace_back("error.type", code_label(code));
  if (!record.model.empty()) own.attributes.emplace_back("gen_ai.request.model", record.model);
  if (!record.caller.empty()) own.attributes.emplace_back("deltad.key", record.caller);
  if (record.prompt_tokens > 0) {
    own.attributes.emplace_back("gen_ai.usage.input_tokens", record.prompt_tokens);
    own.attributes.emplace_back("gen_ai.usage.output_tokens", record.output_tokens);
    own.attributes.emplace_back("deltad.cached_tokens", record.cached_tokens);
  }
  if (!record.finish.empty())
    own.attributes.emplace_back("gen_ai.response.finish_reasons", split(record.finish));

  std::vector<Span> spans = {own};
  const auto below = [&](const char* name, TimePoint from, TimePoint to, const SpanId& above) {
    Span span;
    span.context = context;
    span.context.span = random_span_id();
    span.parent = above;
    span.name = name;
    span.start_ns = unix_time.ns(from);
    span.end_ns = unix_time.ns(to);
    spans.push_back(span);
    return span.context.span;
  };
  const TimePoint never{};
  // What a phase did not come to an end in ends with the request.
  const auto or_end = [&](TimePoint at) { return at == never ? times.ended : at; };
  if (times.parked == never && times.admitted == never) return spans;
  const SpanId queue = below("queue", times.received, or_end(times.admitted), context.span);
  if (times.parked != never) below("load", times.parked, or_end(times.unparked), queue);
  if (times.admitted == never) return spans;
  below("prefill", times.admitted, or_end(times.first_token), context.span);
  if (times.first_token != never) below("decode", times.first_token, times.ended, context.span);
  return spans;
}

}  // namespace deltad
