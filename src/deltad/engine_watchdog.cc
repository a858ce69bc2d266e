#include "deltad/engine_watchdog.h"

#include <utility>

#include "base/log.h"

namespace deltad {

EngineWatchdog::EngineWatchdog(const Engine& engine, Duration bound, ServerMetrics& metrics,
                               std::function<std::string()> state)
    : engine_(engine), bound_(bound), metrics_(metrics), state_(std::move(state)) {}

bool EngineWatchdog::check() {
  const Duration age = engine_.step_age();
  const bool stalled = age >= bound_;
  if (stalled == stalled_) return !stalled;
  stalled_ = stalled;
  metrics_.set_stalled(stalled);
  if (stalled)
    log_event(
        LogLevel::kError, "engine stalled",
        {{"step_seconds", seconds(age)}, {"bound_seconds", seconds(bound_)}, {"state", state_()}});
  else
    log_warning("the engine goes on: its step has ended");
  return !stalled;
}

}  // namespace deltad
