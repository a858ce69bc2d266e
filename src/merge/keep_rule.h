// KeepRule: how many leading singular directions of a task vector count as its signal. Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace deltad {

struct KeepRule {
  enum class Kind {
    kEnergy,         // smallest k with Σ_{i≤k}σ² / Σσ² ≥ energy
    kEffectiveRank,  // k = ⌈exp H(σ/Σσ)⌉
    kRank,           // k = rank
    kAll,            // the task vector as it is
  };
  Kind kind = Kind::kEnergy;
  double energy = 0.8;
  int64_t rank = 0;

  // "0.8", "effective", "rank:16" or "all".
  static Result<KeepRule> parse(const std::string& text);
  std::string str() const;
  // 1 … p for p falling singular values that are not all 0.
  int64_t count(const std::vector<float>& sigma) const;
};

// One rule for all matrices, and others for some kinds ("q_proj").
struct KeepRules {
  KeepRule otherwise;
  std::map<std::string, KeepRule> of_kind;

  // Each "RULE" or "KIND=RULE".
  static Result<KeepRules> parse(const std::vector<std::string>& texts);
  const KeepRule& of(const std::string& kind) const;
};

}  // namespace deltad
