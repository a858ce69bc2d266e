// QueueBounds: how many requests may wait, for one variant and in total, and when to come back if
// there are too many: what waits, divided by the rate at which waiting ones have lately been
// served. A request waits from its arrival until its first token. Owned by the router, under its
// mutex.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "router/eviction_policy.h"
#include "router/request_limiter.h"

namespace deltad {

struct QueueShare {  // of one variant's name, or of all
  int64_t waiting = 0;
  double served = kNeverAsked;  // a DecayedCount
  std::optional<RequestLimiter> limiter;
};

class QueueBounds {
 public:
  QueueBounds(int64_t total, int64_t per_variant) : total_(total), per_variant_(per_variant) {}

  // Counts a request in, or kResourceExhausted with retry_after(). share null: the base, which only
  // the total bounds.
  Status enter(QueueShare* share, const std::string& name, TimePoint now);
  // served: it got its turn; else it left of itself, which says nothing about the rate.
  void leave(QueueShare* share, bool served, TimePoint now);
  int64_t waiting() const { return all_.waiting; }
  // Of requests that come from now on.
  void set(int64_t total, int64_t per_variant) {
    total_ = total;
    per_variant_ = per_variant;
  }

 private:
  int retry_after(const QueueShare& share, TimePoint now) const;

  int64_t total_, per_variant_;
  const DecayedCount rate_{10.0};
  QueueShare all_;
};

}  // namespace deltad
