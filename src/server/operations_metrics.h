// The parts of the metrics page about the process and its operation: build, memory, reloads of the
// config, the engine's watchdog, spans. Pure, but for what it asks of the operating system.
#pragma once

#include <cstdint>
#include <optional>

#include "server/observe/span.h"
#include "server/prometheus_text.h"

namespace deltad {

struct OperationFigures {
  bool draining = false;
  uint64_t reloads = 0, refused_reloads = 0;  // of the config
  bool last_reload_ok = true;
  bool stalled = false;  // a step of the engine takes longer than the watchdog's bound
  uint64_t stalls = 0;
};

void render_process(PrometheusText& out);
// spans: none if nothing is traced.
void render_operation(const OperationFigures& figures, const std::optional<SpanCounts>& spans,
                      PrometheusText& out);

}  // namespace deltad
