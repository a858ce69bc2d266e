// EngineWatchdog: notices that a step of the engine takes longer than a bound, and says how
// everything stood then. Readiness follows from the engine's own health; this is for those who look
// for the reason afterwards. One thread calls check() again and again.
#pragma once

#include <functional>
#include <string>

#include "engine/engine.h"
#include "server/metrics.h"

namespace deltad {

class EngineWatchdog {
 public:
  // state: how everything stands, in one line. All outlive it.
  EngineWatchdog(const Engine& engine, Duration bound, ServerMetrics& metrics,
                 std::function<std::string()> state);

  // False while a step takes longer than the bound.
  bool check();

 private:
  const Engine& engine_;
  const Duration bound_;
  ServerMetrics& metrics_;
  const std::function<std::string()> state_;
  bool stalled_ = false;
};

}  // namespace deltad
