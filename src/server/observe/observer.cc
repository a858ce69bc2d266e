#include "server/observe/observer.h"

#include <utility>

namespace deltad {

std::unique_ptr<RequestRecord> Observer::begin(Route route, std::string id, TimePoint received,
                                               const TraceHeaders& trace) {
  if (received == TimePoint{}) received = Clock::real().now();
  std::optional<TraceContext> context;
  SpanId parent{};
  if (spans_ != nullptr) {
    context = TraceContext::parse(trace);
    if (context) {
      parent = context->span;
    } else {
      context.emplace();
      context->trace = random_trace_id();
      context->sampled = sampled_by_ratio(context->trace, ratio_);
    }
    context->span = random_span_id();
    if (!context->sampled) context.reset();
  }
  return std::make_unique<RequestRecord>(*this, route, std::move(id), received, std::move(context),
                                         parent);
}

}  // namespace deltad
