// EvictionPolicy: how much a variant is worth keeping, as one number that changes only when the
// variant is asked for, so that an ordered set of these numbers gives the next victim. Owned by a
// DeltaCache and under the same mutex as it.
#pragma once

#include <cstdint>
#include <limits>

#include "base/clock.h"

namespace deltad {

using VariantId = uint64_t;  // of one version of a variant; never reused

constexpr double kNeverAsked = -std::numeric_limits<double>::infinity();

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  // The priority after one more request. before: the one so far (kNeverAsked at first).
  virtual double on_request(VariantId id, double before, int64_t bytes, TimePoint now) = 0;
  // Whether a variant of priority `low` is so much less asked for than one of `high` that waiting
  // for the former to be idle beats evicting the latter.
  virtual bool much_colder(double /*low*/, double /*high*/) const { return false; }
  // The variant leaves memory.
  virtual void on_evict(VariantId, double /*priority*/) {}
};

// An exponentially decayed count: n events at times t_i count Σ 2^(−(now − t_i) / half-life). Kept
// as log2 of the count as it would be at time zero, which does not change between two events and
// orders any two counts as they are ordered at every moment.
class DecayedCount {
 public:
  explicit DecayedCount(double half_life_seconds) : half_life_(half_life_seconds) {}
  double add(double log_count, TimePoint now) const;
  // The count as it is now.
  double value(double log_count, TimePoint now) const;
  // Events a second, were they to come evenly.
  double rate(double log_count, TimePoint now) const;

 private:
  double age(TimePoint now) const { return seconds(now.time_since_epoch()) / half_life_; }
  const double half_life_;
};

// The one that deltad uses: the decayed request rate.
class DecayedRatePolicy final : public EvictionPolicy {
 public:
  explicit DecayedRatePolicy(double half_life_seconds) : count_(half_life_seconds) {}
  double on_request(VariantId, double before, int64_t, TimePoint now) override {
    return count_.add(before, now);
  }
  // Four times.
  bool much_colder(double low, double high) const override { return high - low >= 2; }

 private:
  const DecayedCount count_;
};

}  // namespace deltad
