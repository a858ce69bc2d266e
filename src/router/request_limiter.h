// RequestLimiter: how many requests and tokens of one variant are admitted in a time. Two token
// buckets, of which each may be absent. Time comes in from outside. Owned by the router, under its
// mutex.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "base/token_bucket.h"

namespace deltad {

struct VariantLimit {
  double requests_per_second = 0;  // 0: as many as come
  int64_t burst = 0;  // requests at once after a pause; 0: those of a second, at least one
  double tokens_per_minute = 0;  // of prompts and answers; 0: as many as come

  bool any() const { return requests_per_second > 0 || tokens_per_minute > 0; }
  int64_t burst_or_default() const;
  bool operator==(const VariantLimit&) const = default;
};

class RequestLimiter {
 public:
  explicit RequestLimiter(const VariantLimit& limit);

  // kResourceExhausted with retry_after(), or OK. Counts nothing.
  Status check(const std::string& name, TimePoint now) const;
  // Tokens count once they are known: a prompt's when it is admitted, an answer's when it has
  // ended. Those beyond the limit are owed, and later requests wait until they have been made up
  // for.
  void count_request(TimePoint now);
  void count_tokens(int64_t tokens, TimePoint now);

  const VariantLimit& limit() const { return limit_; }

 private:
  VariantLimit limit_;
  std::optional<TokenBucket> requests_, tokens_;
};

}  // namespace deltad
