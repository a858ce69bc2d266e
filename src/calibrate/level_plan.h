// LevelPlan: how many levels of signs each matrix gets under a budget of bytes, by what a further
// level takes off the output error per byte. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace deltad {

struct LevelCosts {
  std::string weight;
  int64_t level_bytes = 0;    // of one level: signs and α
  std::vector<double> error;  // of the output with 0, 1, … levels, comparable between matrices
};

// "1.0bit" … "4.0bit": that many levels' bytes on average over the weights; or bytes of signs and
// α, as a number. kInvalidArgument says what was expected.
struct LevelBudget {
  double bits = 0;
  int64_t bytes = 0;

  static Result<LevelBudget> parse(const std::string& text);
  int64_t bytes_for(const std::vector<LevelCosts>& matrices) const;
};

// Levels by weight. The step that takes off most per byte comes first, as long as there is room for
// it; a step may be of several levels where one alone takes off less.
std::map<std::string, int> plan_levels(const std::vector<LevelCosts>& matrices, int64_t bytes);

}  // namespace deltad
