#include "calibrate/level_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <queue>
#include <tuple>

#include "backend/backend.h"

namespace deltad {
namespace {

double error_of(const MatrixCosts& costs, const MatrixForm& form) {
  return costs.error[static_cast<size_t>(form.levels)][static_cast<size_t>(form.rank)];
}

struct Step {
  double gain;  // error taken off a byte
  size_t matrix;
  MatrixForm to;

  bool operator<(const Step& other) const {  // of equal ones, the first matrix is the largest
    return std::tie(gain, other.matrix) < std::tie(other.gain, matrix);
  }
};

// The best next step from `now`; gain 0 if none takes anything off.
Step next_step(const MatrixCosts& costs, size_t matrix, const MatrixForm& now, bool ranks,
               int64_t room) {
  Step best{0, matrix, now};
  const int64_t before = costs.bytes(now);
  const double error = error_of(costs, now);
  for (int levels = now.levels; levels < static_cast<int>(costs.error.size()); ++levels) {
    const auto count =
        static_cast<int64_t>(ranks ? costs.error[static_cast<size_t>(levels)].size() : 1);
    for (int64_t rank = 0; rank < count; ++rank) {
      const MatrixForm to{levels, rank};
      const int64_t bytes = costs.bytes(to) - before;
      if (bytes <= 0) continue;
      if (bytes > room) break;
      const double gain = (error - error_of(costs, to)) / static_cast<double>(bytes);
      if (gain > best.gain) best = {gain, matrix, to};
    }
  }
  return best;
}

// Spends from `room`, beginning with the forms that there are.
void spend(const std::vector<MatrixCosts>& matrices, bool ranks, int64_t* room, FormPlan* plan) {
  std::priority_queue<Step> steps;
  for (size_t i = 0; i < matrices.size(); ++i)
    steps.push(next_step(matrices[i], i, (*plan)[matrices[i].weight], ranks, *room));
  while (!steps.empty()) {
    const Step step = steps.top();
    steps.pop();
    if (!(step.gain > 0)) continue;
    const MatrixCosts& costs = matrices[step.matrix];
    MatrixForm& now = (*plan)[costs.weight];
    const int64_t bytes = costs.bytes(step.to) - costs.bytes(now);
    if (bytes <= *room) {
      *room -= bytes;
      now = step.to;
    }
    // What fits now: less may than when the step was put there.
    const Step next = next_step(costs, step.matrix, now, ranks, *room);
    if (next.gain > 0) steps.push(next);
  }
}

double total_error(const std::vector<MatrixCosts>& matrices, const FormPlan& plan) {
  double sum = 0;
  for (const MatrixCosts& costs : matrices) sum += error_of(costs, plan.at(costs.weight));
  return sum;
}

bool has_ranks(const MatrixCosts& costs) {
  return std::any_of(costs.error.begin(), costs.error.end(),
                     [](const auto& errors) { return errors.size() > 1; });
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

int64_t LevelBudget::bytes_for(const std::vector<MatrixCosts>& matrices) const {
  if (bits == 0) return bytes;
  return static_cast<int64_t>(bits * static_cast<double>(one_level_bytes(matrices)));
}

int64_t one_level_bytes(const std::vector<MatrixCosts>& matrices) {
  int64_t bytes = 0;
  for (const MatrixCosts& costs : matrices) bytes += costs.level_bytes;
  return bytes;
}

FormPlan plan_forms(const std::vector<MatrixCosts>& matrices, int64_t bytes) {
  FormPlan levels;
  int64_t room = bytes;
  spend(matrices, false, &room, &levels);
  if (std::none_of(matrices.begin(), matrices.end(), has_ranks)) return levels;
  FormPlan plan;
  const int64_t first = std::min(bytes, one_level_bytes(matrices));
  room = first;
  spend(matrices, false, &room, &plan);
  room += bytes - first;
  if (bytes > first) spend(matrices, true, &room, &plan);
  return total_error(matrices, plan) < total_error(matrices, levels) ? plan : levels;
}

}  // namespace deltad
