#include "engine/step_cost.h"

#include <algorithm>
#include <cmath>

namespace deltad {
namespace {

constexpr double kSmoothing = 0.1;        // share of the newest step
constexpr double kSmallest = 1e-7;        // seconds a row; keeps the quotient below finite
constexpr double kEnoughVariance = 0.25;  // of the row count, to tell a slope

}  // namespace

void StepCost::observe(int32_t generating_rows, int32_t prompt_rows, double seconds) {
  if (!(seconds >= 0)) return;
  if (prompt_rows == 0) {
    if (generating_rows == 0) return;
    // A running regression line of seconds over rows. The first steps count fully.
    weight_ = std::min(weight_ + 1, 1 / kSmoothing);
    const double share = 1 / weight_;
    const double d_rows = generating_rows - mean_rows_, d_seconds = seconds - mean_seconds_;
    mean_rows_ += share * d_rows;
    mean_seconds_ += share * d_seconds;
    variance_ = (1 - share) * (variance_ + share * d_rows * d_rows);
    covariance_ = (1 - share) * (covariance_ + share * d_rows * d_seconds);
    if (variance_ >= kEnoughVariance) per_generating_row_ = covariance_ / variance_;
    // The line passes through the means, and neither part is negative.
    per_generating_row_ = std::clamp(per_generating_row_, 0.0, mean_seconds_ / mean_rows_);
    fixed_ = mean_seconds_ - per_generating_row_ * mean_rows_;
    return;
  }
  // What the other rows do not explain belongs to the prompt's rows. Without measured generating
  // steps the fixed part is a guess, and counts as the prompt's.
  const double rest =
      weight_ == 0 ? seconds : seconds - fixed_ - per_generating_row_ * generating_rows;
  const double measured = std::max(rest / prompt_rows, kSmallest);
  // A chunk of few rows says little about the cost of one row among many.
  const double share = prompt_seen_ ? 2 * kSmoothing * std::min(1.0, prompt_rows / 64.0) : 1.0;
  per_prompt_row_ += share * (measured - per_prompt_row_);
  prompt_seen_ = true;
}

double StepCost::seconds(int32_t generating_rows, int32_t prompt_rows) const {
  return fixed_ + per_generating_row_ * generating_rows + per_prompt_row_ * prompt_rows;
}

int64_t StepCost::prompt_rows_within(double bound, int32_t generating_rows) const {
  const double rows = (bound - seconds(generating_rows, 0)) / std::max(per_prompt_row_, kSmallest);
  return static_cast<int64_t>(std::clamp(std::floor(rows), -1e9, 1e9));
}

}  // namespace deltad
