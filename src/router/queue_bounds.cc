#include "router/queue_bounds.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace deltad {
namespace {

constexpr double kLongestRetry = 60;  // seconds

}  // namespace

Status QueueBounds::enter(QueueShare* share, const std::string& name, TimePoint now) {
  if (share != nullptr && share->waiting >= per_variant_)
    return resource_exhausted(
               fmt::format("{} requests for '{}' are waiting already, which is the limit",
                           share->waiting, name))
        .with_retry_after(retry_after(*share, now));
  if (all_.waiting >= total_)
    return resource_exhausted(
               fmt::format("{} requests are waiting already, which is the limit", all_.waiting))
        .with_retry_after(retry_after(all_, now));
  ++all_.waiting;
  if (share != nullptr) ++share->waiting;
  return Status();
}

void QueueBounds::leave(QueueShare* share, bool served, TimePoint now) {
  for (QueueShare* s : {&all_, share}) {
    if (s == nullptr) continue;
    --s->waiting;
    if (served) s->served = rate_.add(s->served, now);
  }
}

int QueueBounds::retry_after(const QueueShare& share, TimePoint now) const {
  const double rate = rate_.rate(share.served, now);
  if (rate <= 0) return 1;  // nobody was served yet: nothing is known
  const double wait = static_cast<double>(share.waiting) / rate;
  return static_cast<int>(std::ceil(std::clamp(wait, 1.0, kLongestRetry)));
}

}  // namespace deltad
