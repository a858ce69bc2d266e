// TraceContext: the place of a request in a trace, as W3C's Trace Context passes it on in the
// headers traceparent and tracestate. Plain data.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace deltad {

using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;

// The headers as they came; empty: none.
struct TraceHeaders {
  std::string traceparent, tracestate;
};

struct TraceContext {
  TraceId trace{};
  SpanId span{};  // the caller's, or our own
  bool sampled = false;
  std::string state;  // tracestate, passed on as it is

  // None if traceparent is not one: then the trace begins anew and tracestate is dropped, too.
  static std::optional<TraceContext> parse(const TraceHeaders& headers);
};

// Lower-case hexadecimal.
std::string hex_of(const TraceId& id);
std::string hex_of(const SpanId& id);

// Never zero. Any thread.
TraceId random_trace_id();
SpanId random_span_id();

// Whether a trace of this share (0 to 1) of all is kept: the same answer for the same id.
bool sampled_by_ratio(const TraceId& id, double ratio);

}  // namespace deltad
