// The spans of one request: its own, and below it those of what it went through: the wait for a
// place in a step, of that the wait for its variant, the prompt and the answer. Pure.
#pragma once

#include <vector>

#include "base/clock.h"
#include "server/observe/span.h"

namespace deltad {

class RequestRecord;

struct RequestTimes {  // zero: it never got there
  TimePoint received{}, parked{}, unparked{}, admitted{}, first_token{}, ended{};
};

std::vector<Span> request_spans(const RequestRecord& record, int code, const TraceContext& context,
                                const SpanId& parent, const RequestTimes& times);

}  // namespace deltad
