// Eviction policies from the literature, to compare with the one that deltad uses. Each is the
// priority of a variant after a request; the DeltaCache, its rules and its ties are the same for
// all.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "router/eviction_policy.h"

namespace deltad::policy_sim {

// Least recently used.
class Lru final : public EvictionPolicy {
 public:
  double on_request(VariantId, double, int64_t, TimePoint now) override {
    return seconds(now.time_since_epoch());
  }
};

// Least frequently used with dynamic ageing (LFU-DA): count + L, where L is the priority of the
// last victim; an evicted variant begins again.
class LfuAgeing : public EvictionPolicy {
 public:
  double on_request(VariantId id, double, int64_t bytes, TimePoint) override {
    return age_ + ++count_[id] * worth(bytes);
  }
  void on_evict(VariantId id, double priority) override {
    age_ = std::max(age_, priority);
    count_.erase(id);
  }

 protected:
  virtual double worth(int64_t) const { return 1; }

 private:
  double age_ = 0;
  std::unordered_map<VariantId, double> count_;
};

// Greedy-Dual-Size-Frequency: L + count × cost / size, cost 1.
class Gdsf final : public LfuAgeing {
 protected:
  // An unmeasured variant (0 bytes) counts as one of the usual size.
  double worth(int64_t bytes) const override {
    return bytes > 0 ? 1e3 / static_cast<double>(bytes) : 1;
  }
};

// LRFU: a count that halves every 1/λ requests (of any variant), λ = 0.001, its authors' usual
// choice; an evicted variant begins again.
class Lrfu final : public EvictionPolicy {
 public:
  double on_request(VariantId id, double, int64_t, TimePoint) override {
    const double one = kLambda * static_cast<double>(++requests_);
    const auto [at, added] = count_.emplace(id, one);
    if (!added) {
      const double high = std::max(at->second, one), low = std::min(at->second, one);
      at->second = high + std::log2(1 + std::exp2(low - high));
    }
    return at->second;
  }
  void on_evict(VariantId id, double) override { count_.erase(id); }

 private:
  static constexpr double kLambda = 1e-3;
  int64_t requests_ = 0;
  std::unordered_map<VariantId, double> count_;
};

}  // namespace deltad::policy_sim
