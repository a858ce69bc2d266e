#include "server/access/caller.h"

#include <fmt/core.h>

#include <algorithm>

namespace deltad {

void KeyUse::set_rate(double tokens_per_minute) {
  MutexLock lock(mutex_);
  if (tokens_per_minute == rate_) return;
  rate_ = tokens_per_minute;
  tokens_.reset();
  if (rate_ > 0) tokens_.emplace(rate_ / 60, rate_);
}

Status KeyUse::begin(const KeyRules& rules, TimePoint now) {
  MutexLock lock(mutex_);
  if (rules.parallel_requests > 0 && running_ >= rules.parallel_requests)
    return resource_exhausted(
               fmt::format("This API key may have {} requests at once.", rules.parallel_requests))
        .with_retry_after(1);
  if (tokens_) {
    const double wait = tokens_->wait(now);
    if (wait > 0) {
      const int seconds = retry_seconds(wait);
      return resource_exhausted(
                 fmt::format(
                     "This API key is limited to {:.0f} tokens a minute: try again in {} s.", rate_,
                     seconds))
          .with_retry_after(seconds);
    }
  }
  ++running_;
  return Status();
}

void KeyUse::end() {
  MutexLock lock(mutex_);
  --running_;
}

void KeyUse::used(int64_t tokens, TimePoint now) {
  MutexLock lock(mutex_);
  if (tokens_) tokens_->take(static_cast<double>(tokens), now);
}

bool Caller::may_use(std::string_view model) const {
  return std::any_of(rules_.models.begin(), rules_.models.end(),
                     [&](const std::string& pattern) { return matches_pattern(pattern, model); });
}

bool Caller::may_use_all() const {
  return std::find(rules_.models.begin(), rules_.models.end(), "*") != rules_.models.end();
}

Status Caller::check_model(std::string_view model) const {
  if (may_use(model)) return Status();
  return permission_denied(
      "This API key may not use this model; GET /v1/models lists those that it may.");
}

Result<Admission> Caller::admit() const {
  RETURN_IF_ERROR(use_->begin(rules_, clock_.now()));
  return Admission(use_, clock_);
}

}  // namespace deltad
