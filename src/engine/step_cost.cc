#include "engine/step_cost.h"

#include <algorithm>
#include <cmath>

namespace deltad {
namespace {

constexpr double kSmoothing = 0.1;        // share of the newest step
constexpr double kSmallest = 1e-7;        // seconds a row; keeps the quotient below finite
constexpr double kEnoughVariance = 0.25;  // of the row count, to tell a slope
// What the guess of a delta's cost weighs against measurements, as a variance of units: deltas that
// vary by a hundredth of the base outweigh it.
constexpr double kGuess = 1e-5;

}  // namespace

StepCost::StepCost(size_t base_bytes)
    : unit_(base_bytes > 0 ? static_cast<double>(base_bytes) : double{1 << 30}),
      base_known_(base_bytes > 0) {
  if (base_known_) per_unit_ = fixed_;
}

void StepCost::observe(int32_t generating_rows, int32_t prompt_rows, double seconds,
                       double delta_bytes) {
  if (!(seconds >= 0)) return;
  const double units = delta_bytes / unit_;
  if (prompt_rows == 0) {
    if (generating_rows == 0) return;
    // A running regression of seconds over rows and units. The first steps count fully.
    weight_ = std::min(weight_ + 1, 1 / kSmoothing);
    const double share = 1 / weight_, keep = 1 - share;
    const double dx = generating_rows - mean_x_, du = units - mean_u_, dy = seconds - mean_y_;
    mean_x_ += share * dx;
    mean_u_ += share * du;
    mean_y_ += share * dy;
    var_x_ = keep * (var_x_ + share * dx * dx);
    var_u_ = keep * (var_u_ + share * du * du);
    cov_xu_ = keep * (cov_xu_ + share * dx * du);
    cov_xy_ = keep * (cov_xy_ + share * dx * dy);
    cov_uy_ = keep * (cov_uy_ + share * du * dy);
    fit();
    return;
  }
  // What the other rows do not explain belongs to the prompt's rows. Without measured generating
  // steps the fixed part is a guess, and counts as the prompt's.
  const double rest =
      weight_ == 0 ? seconds
                   : seconds - fixed_ - per_generating_row_ * generating_rows - per_unit_ * units;
  const double measured = std::max(rest / prompt_rows, kSmallest);
  // A chunk of few rows says little about the cost of one row among many.
  const double share = prompt_seen_ ? 2 * kSmoothing * std::min(1.0, prompt_rows / 64.0) : 1.0;
  per_prompt_row_ += share * (measured - per_prompt_row_);
  prompt_seen_ = true;
}

void StepCost::fit() {
  // Least squares in two variables. The guess for the unit's cost is one more equation; it decides
  // while rows and units rise and fall together, or units do not vary at all.
  const double guess = base_known_ ? fixed_ : per_unit_;
  const bool rows_vary = var_x_ >= kEnoughVariance;
  const double uu = var_u_ + kGuess, uy = cov_uy_ + kGuess * guess;
  if (rows_vary) {
    const double determinant = var_x_ * uu - cov_xu_ * cov_xu_;
    per_generating_row_ = (cov_xy_ * uu - uy * cov_xu_) / determinant;
    per_unit_ = (uy * var_x_ - cov_xy_ * cov_xu_) / determinant;
  } else {
    per_unit_ = (uy - per_generating_row_ * cov_xu_) / uu;
  }
  // The plane passes through the means, and no part is negative.
  per_generating_row_ = std::clamp(per_generating_row_, 0.0, mean_y_ / mean_x_);
  const double rest = std::max(mean_y_ - per_generating_row_ * mean_x_, 0.0);
  per_unit_ = std::max(per_unit_, 0.0);
  if (mean_u_ > 0) per_unit_ = std::min(per_unit_, rest / mean_u_);
  fixed_ = rest - per_unit_ * mean_u_;
}

double StepCost::prompt_row() const { return std::max(per_prompt_row_, kSmallest); }

double StepCost::seconds(int32_t generating_rows, int32_t prompt_rows, double delta_bytes) const {
  return fixed_ + per_generating_row_ * generating_rows + per_prompt_row_ * prompt_rows +
         delta(delta_bytes);
}

int64_t StepCost::prompt_rows_within(double bound, int32_t generating_rows,
                                     double delta_bytes) const {
  const double rows = (bound - seconds(generating_rows, 0, delta_bytes)) / prompt_row();
  return static_cast<int64_t>(std::clamp(std::floor(rows), -1e9, 1e9));
}

double StepCost::rows_for(double delta_bytes) const { return delta(delta_bytes) / prompt_row(); }

}  // namespace deltad
