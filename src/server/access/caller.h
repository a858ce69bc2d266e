// Caller: who sends a request, as far as its key tells, and what it may do. Any thread.
//
// Admission: one request's place among those that its key may have at once, given back when it goes
// away, and the meter of its tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/token_bucket.h"
#include "server/access/keys_file.h"

namespace deltad {

// What a key has in use. Goes on when the file of keys is read anew.
class KeyUse {
 public:
  explicit KeyUse(double tokens_per_minute) { set_rate(tokens_per_minute); }

  // A new rate begins with a full bucket.
  void set_rate(double tokens_per_minute) EXCLUDES(mutex_);
  Status begin(const KeyRules& rules, TimePoint now) EXCLUDES(mutex_);
  void end() EXCLUDES(mutex_);
  void used(int64_t tokens, TimePoint now) EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  int64_t running_ GUARDED_BY(mutex_) = 0;
  double rate_ GUARDED_BY(mutex_) = 0;
  std::optional<TokenBucket> tokens_ GUARDED_BY(mutex_);
};

class Admission {
 public:
  Admission(std::shared_ptr<KeyUse> use, const Clock& clock)
      : use_(std::move(use)), clock_(&clock) {}
  Admission(Admission&&) = default;
  Admission& operator=(Admission&&) = delete;
  ~Admission() {
    if (use_) use_->end();
  }

  // Tokens count once they are known: a prompt's when it is submitted, an answer's when it has
  // ended. What goes beyond the limit is owed: later requests wait until it has been made up for.
  void used(int64_t tokens) {
    if (use_) use_->used(tokens, clock_->now());
  }

 private:
  std::shared_ptr<KeyUse> use_;  // null: moved from
  const Clock* clock_;
};

class Caller {
 public:
  Caller(KeyRules rules, std::shared_ptr<KeyUse> use, const Clock& clock)
      : rules_(std::move(rules)), use_(std::move(use)), clock_(clock) {}

  // Of the key, for logs; "": there is none, because none is needed.
  const std::string& name() const { return rules_.name; }
  bool admin() const { return rules_.admin; }
  const KeyRules& rules() const { return rules_; }

  // Whether it may use the model (the base or a variant) that clients call so.
  bool may_use(std::string_view model) const;
  bool may_use_all() const;
  // The same as a status: kPermissionDenied, whether there is such a model or not.
  Status check_model(std::string_view model) const;
  // kResourceExhausted with retry_after(): too many at once, or tokens a minute.
  Result<Admission> admit() const;

 private:
  const KeyRules rules_;
  const std::shared_ptr<KeyUse> use_;
  const Clock& clock_;
};

}  // namespace deltad
