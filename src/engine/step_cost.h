// StepCost: what a step is expected to take, learned from the steps so far: seconds = fixed +
// generating rows · a + prompt rows · b + bytes of distinct deltas · c. Until steps with different
// deltas tell, a delta's byte costs what a base's byte does if the fixed part is reading the base.
// Plain arithmetic on the engine's thread; no clock inside.
//
// Weighted least squares with exponential forgetting, regularized towards the last estimate
// (recursive least squares; Ljung, Söderström, "Theory and Practice of Recursive Identification",
// 1983): every step tells of all its parts at once, so a part is learned even if no step ever
// lacked another one, and what the last steps do not tell apart stays as it was known.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace deltad {

class StepCost {
 public:
  // base_bytes: of the base's weights; 0 if unknown.
  explicit StepCost(size_t base_bytes = 0);

  void observe(int32_t generating_rows, int32_t prompt_rows, double seconds,
               double delta_bytes = 0);

  double seconds(int32_t generating_rows, int32_t prompt_rows, double delta_bytes = 0) const;
  // How many prompt rows fit beside the generating ones within the bound; may be negative.
  int64_t prompt_rows_within(double bound, int32_t generating_rows, double delta_bytes = 0) const;
  // How many prompt rows take as long as the delta's bytes.
  double rows_for(double delta_bytes) const;

  double generating_row() const { return parts_[kGenerating]; }  // seconds
  double prompt_row() const;
  double delta(double bytes) const { return parts_[kDelta] * bytes / unit_; }

 private:
  // What a step has of each part: 1, rows, rows, units of delta bytes.
  enum Part : size_t { kFixed, kGenerating, kPrompt, kDelta, kParts };
  using Vector = std::array<double, kParts>;

  void fit();

  double unit_;  // bytes: the base's, so that all numbers are of like size
  bool base_known_;
  // Seconds of each part. Before any measurement: a small model on a few cores.
  Vector parts_{0.005, 0.001, 0.001, 0};
  // Weighted means over the steps, the newest with the greatest weight.
  double weight_ = 0, mean_seconds_ = 0;
  std::array<Vector, kParts> products_{};  // of two parts
  Vector by_seconds_{};                    // of a part and the seconds
};

}  // namespace deltad
