// Span: one stretch of a request's way, as OpenTelemetry understands it, and where spans go. Plain
// data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "server/observe/trace_context.h"

namespace deltad {

using SpanValue = std::variant<std::string, int64_t, double, std::vector<std::string>>;

struct Span {
  enum class Kind { kInternal = 1, kServer = 2 };  // as OTLP numbers them

  TraceContext context;  // its own id
  SpanId parent{};       // zero: the trace begins here
  std::string name;
  Kind kind = Kind::kInternal;
  uint64_t start_ns = 0, end_ns = 0;  // since 1970
  std::vector<std::pair<std::string_view, SpanValue>> attributes;
  bool failed = false;
  std::string message;  // why
};

struct SpanCounts {
  uint64_t exported = 0;
  uint64_t dropped_full = 0;    // found no room in the queue
  uint64_t dropped_failed = 0;  // the collector refused them, or could not be reached
};

class SpanSink {
 public:
  virtual ~SpanSink() = default;
  // Of one request. Any thread; never blocks: what is too much is dropped and counted.
  virtual void add(std::vector<Span> spans) = 0;
  virtual SpanCounts counts() const = 0;
};

}  // namespace deltad
