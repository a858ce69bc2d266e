// Spans in the JSON form of OpenTelemetry's protocol (OTLP 1.x, ExportTraceServiceRequest): ids in
// hexadecimal, 64-bit numbers as strings. Pure.
#pragma once

#include <string>
#include <vector>

#include "server/observe/span.h"

namespace deltad {

// Of one process; service: its service.name.
std::string otlp_json(const std::vector<Span>& spans, const std::string& service);

}  // namespace deltad
