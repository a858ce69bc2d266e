#include "router/request_limiter.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace deltad {
namespace {

Status limited(const std::string& name, const std::string& limit, double wait) {
  const int seconds = retry_seconds(wait);
  return resource_exhausted(
             fmt::format("'{}' is limited to {}: try again in {} s", name, limit, seconds))
      .with_retry_after(seconds);
}

}  // namespace

int64_t VariantLimit::burst_or_default() const {
  return burst > 0 ? burst : std::max<int64_t>(1, std::llround(std::ceil(requests_per_second)));
}

RequestLimiter::RequestLimiter(const VariantLimit& limit) : limit_(limit) {
  if (limit.requests_per_second > 0)
    requests_.emplace(limit.requests_per_second, static_cast<double>(limit.burst_or_default()));
  if (limit.tokens_per_minute > 0)
    tokens_.emplace(limit.tokens_per_minute / 60, limit.tokens_per_minute);
}

Status RequestLimiter::check(const std::string& name, TimePoint now) const {
  if (requests_) {
    const double wait = requests_->wait(now);
    if (wait > 0)
      return limited(name, fmt::format("{:g} requests a second", limit_.requests_per_second), wait);
  }
  if (tokens_) {
    const double wait = tokens_->wait(now);
    if (wait > 0)
      return limited(name, fmt::format("{:g} tokens a minute", limit_.tokens_per_minute), wait);
  }
  return Status();
}

void RequestLimiter::count_request(TimePoint now) {
  if (requests_) requests_->take(1, now);
}

void RequestLimiter::count_tokens(int64_t tokens, TimePoint now) {
  if (tokens_) tokens_->take(static_cast<double>(tokens), now);
}

}  // namespace deltad
