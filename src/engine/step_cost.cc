#include "engine/step_cost.h"

#include <algorithm>
#include <cmath>

namespace deltad {
namespace {

constexpr double kForget = 1.0 / 32;  // share of the newest step once there are many
constexpr double kSmallest = 1e-7;    // seconds a row; keeps the quotient below finite
// How firmly the last estimate of each part is held, as a variance of what steps have of it.
constexpr std::array<double, 4> kHold{1e-2, 0.25, 0.25, 1e-5};
// What the guess of a delta's cost weighs, as a variance of units: deltas that vary by a hundredth
// of the base outweigh it.
constexpr double kGuess = 1e-5;
constexpr double kMostWeight = 64;  // of one step to another

}  // namespace

StepCost::StepCost(size_t base_bytes)
    : unit_(base_bytes > 0 ? static_cast<double>(base_bytes) : double{1 << 30}),
      base_known_(base_bytes > 0) {
  if (base_known_) parts_[kDelta] = parts_[kFixed];
}

void StepCost::observe(int32_t generating_rows, int32_t prompt_rows, double seconds,
                       double delta_bytes) {
  if (!(seconds >= 0) || generating_rows + prompt_rows == 0) return;
  const Vector step{1, static_cast<double>(generating_rows), static_cast<double>(prompt_rows),
                    delta_bytes / unit_};
  // Times are off by a part of themselves, so a short step tells more than a long one does.
  const double expected = std::max(this->seconds(generating_rows, prompt_rows, delta_bytes), 1e-9);
  const double ratio = weight_ > 0 ? mean_seconds_ / expected : 1;
  const double weight = std::clamp(ratio * ratio, 1 / kMostWeight, kMostWeight);
  weight_ = weight_ * (1 - kForget) + weight;
  const double share = weight / weight_;
  mean_seconds_ += share * (seconds - mean_seconds_);
  for (size_t i = 0; i < kParts; ++i) {
    for (size_t j = 0; j < kParts; ++j)
      products_[i][j] += share * (step[i] * step[j] - products_[i][j]);
    by_seconds_[i] += share * (step[i] * seconds - by_seconds_[i]);
  }
  fit();
}

// The normal equations, by Gauss-Jordan elimination. A part that comes out negative is nothing, and
// the others are found without it.
void StepCost::fit() {
  std::array<bool, kParts> nothing{};
  for (size_t round = 0; round < kParts; ++round) {
    std::array<Vector, kParts> left = products_;
    Vector right = by_seconds_;
    for (size_t i = 0; i < kParts; ++i) {
      left[i][i] += kHold[i];
      right[i] += kHold[i] * parts_[i];
    }
    if (base_known_) {  // a unit costs what the base does
      left[kFixed][kFixed] += kGuess;
      left[kDelta][kDelta] += kGuess;
      left[kFixed][kDelta] -= kGuess;
      left[kDelta][kFixed] -= kGuess;
    }
    for (size_t i = 0; i < kParts; ++i) {
      if (!nothing[i]) continue;
      for (size_t j = 0; j < kParts; ++j) left[i][j] = left[j][i] = 0;
      left[i][i] = 1;
      right[i] = 0;
    }
    for (size_t i = 0; i < kParts; ++i) {  // positive definite: no pivot is zero
      for (size_t j = 0; j < kParts; ++j) {
        if (j == i) continue;
        const double factor = left[j][i] / left[i][i];
        for (size_t k = i; k < kParts; ++k) left[j][k] -= factor * left[i][k];
        right[j] -= factor * right[i];
      }
    }
    bool negative = false;
    for (size_t i = 0; i < kParts; ++i) {
      right[i] /= left[i][i];
      if (right[i] >= 0) continue;
      nothing[i] = negative = true;
      right[i] = 0;
    }
    if (!negative || round + 1 == kParts) {
      parts_ = right;
      return;
    }
  }
}

double StepCost::prompt_row() const { return std::max(parts_[kPrompt], kSmallest); }

double StepCost::seconds(int32_t generating_rows, int32_t prompt_rows, double delta_bytes) const {
  return parts_[kFixed] + parts_[kGenerating] * generating_rows + parts_[kPrompt] * prompt_rows +
         delta(delta_bytes);
}

int64_t StepCost::prompt_rows_within(double bound, int32_t generating_rows,
                                     double delta_bytes) const {
  const double rows = (bound - seconds(generating_rows, 0, delta_bytes)) / prompt_row();
  return static_cast<int64_t>(std::clamp(std::floor(rows), -1e9, 1e9));
}

double StepCost::rows_for(double delta_bytes) const { return delta(delta_bytes) / prompt_row(); }

}  // namespace deltad
