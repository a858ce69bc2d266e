#include "server/readiness.h"

#include <fmt/core.h>

#include <utility>

namespace deltad {

void Readiness::set_ready(const Serving& serving) { set_loaded(serving, ""); }

void Readiness::set_loaded(const Serving& serving, std::string reason) {
  MutexLock lock(mutex_);
  serving_ = serving;
  if (!closed_) reason_ = std::move(reason);
}

void Readiness::close(std::string reason) {
  MutexLock lock(mutex_);
  closed_ = true;
  reason_ = std::move(reason);
}

ApiError Readiness::check(Serving* serving) const {
  MutexLock lock(mutex_);
  if (serving_) *serving = *serving_;
  if (!reason_.empty()) return api_error(503, reason_);
  if (needed_ == Engine::kHealthy && !serving->engine->healthy()) {
    const Status device = serving->engine->device_health();
    return api_error(503, device.ok()
                              ? "The engine is not healthy."
                              : fmt::format("The engine is not healthy: {}.", device.message()));
  }
  return {};
}

}  // namespace deltad
