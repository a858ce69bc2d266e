// StepCost: what a step is expected to take, learned from the steps so far: seconds = fixed +
// generating rows · a + prompt rows · b + bytes of distinct deltas · c. Until steps with different
// deltas tell, a delta's byte costs what a base's byte does if the fixed part is reading the base.
// Plain arithmetic on the engine's thread; no clock inside.
#pragma once

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

  double generating_row() const { return per_generating_row_; }  // seconds
  double prompt_row() const;
  double delta(double bytes) const { return per_unit_ * bytes / unit_; }

 private:
  void fit();

  double unit_;           // bytes: the base's, so that all numbers below are of like size
  double fixed_ = 0.005;  // before any measurement: a small model on a few cores
  double per_generating_row_ = 0.001;
  double per_prompt_row_ = 0.001;
  double per_unit_ = 0;  // of delta bytes
  // Exponentially weighted means over steps without prompt rows: x rows, u units of deltas, y
  // seconds.
  double weight_ = 0, mean_x_ = 0, mean_u_ = 0, mean_y_ = 0;
  double var_x_ = 0, var_u_ = 0, cov_xu_ = 0, cov_xy_ = 0, cov_uy_ = 0;
  bool base_known_;
  bool prompt_seen_ = false;
};

}  // namespace deltad
