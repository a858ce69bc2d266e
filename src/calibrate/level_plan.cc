#include "calibrate/level_plan.h"

#include <fmt/format.h>

#include <charconv>
#include <queue>
#include <tuple>

#include "backend/backend.h"

namespace deltad {
namespace {

struct Step {
  double gain;  // error taken off a byte
  size_t matrix;
  int levels;  // after it

  bool operator<(const Step& other) const {  // of equal ones, the first matrix is the largest
    return std::tie(gain, other.matrix) < std::tie(other.gain, matrix);
  }
};

// The best next step from `levels`; gain 0 if none takes anything off.
Step next_step(const LevelCosts& costs, size_t matrix, int levels, int64_t room) {
  Step best{0, matrix, levels};
  for (int to = levels + 1; to < static_cast<int>(costs.error.size()); ++to) {
    const int64_t bytes = costs.level_bytes * (to - levels);
    if (bytes > room) break;
    const double gain =
        (costs.error[static_cast<size_t>(levels)] - costs.error[static_cast<size_t>(to)]) /
        static_cast<double>(bytes);
    if (gain > best.gain) best = {gain, matrix, to};
  }
  return best;
}

}  // namespace

Result<LevelBudget> LevelBudget::parse(const std::string& text) {
  LevelBudget budget;
  const char *begin = text.data(), *end = begin + text.size();
  if (text.size() > 3 && text.ends_with("bit")) {
    const auto [at, error] = std::from_chars(begin, end - 3, budget.bits);
    if (error == std::errc() && at == end - 3 && budget.bits > 0 && budget.bits <= kMaxLevels)
      return budget;
  } else {
    const auto [at, error] = std::from_chars(begin, end, budget.bytes);
    if (error == std::errc() && at == end && budget.bytes > 0) return budget;
  }
  return invalid_argument(
      fmt::format("'{}' is no budget; expected bits a weight, such as 1.5bit (up to {}bit), or a "
                  "number of bytes",
                  text, kMaxLevels));
}

int64_t LevelBudget::bytes_for(const std::vector<LevelCosts>& matrices) const {
  if (bits == 0) return bytes;
  int64_t one = 0;
  for (const LevelCosts& costs : matrices) one += costs.level_bytes;
  return static_cast<int64_t>(bits * static_cast<double>(one));
}

std::map<std::string, int> plan_levels(const std::vector<LevelCosts>& matrices, int64_t bytes) {
  std::map<std::string, int> levels;
  std::priority_queue<Step> steps;
  for (size_t i = 0; i < matrices.size(); ++i) {
    levels[matrices[i].weight] = 0;
    steps.push(next_step(matrices[i], i, 0, bytes));
  }
  while (!steps.empty()) {
    const Step step = steps.top();
    steps.pop();
    const LevelCosts& costs = matrices[step.matrix];
    int& now = levels[costs.weight];
    if (!(step.gain > 0)) continue;
    const int64_t cost = costs.level_bytes * (step.levels - now);
    if (cost <= bytes) {
      bytes -= cost;
      now = step.levels;
    }
    // What fits now: less may than when the step was put there.
    const Step next = next_step(costs, step.matrix, now, bytes);
    if (next.gain > 0) steps.push(next);
  }
  return levels;
}

}  // namespace deltad
