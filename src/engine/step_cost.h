// StepCost: what a step is expected to take, learned from the steps so far: seconds = fixed +
// generating rows · a + prompt rows · b. Plain arithmetic on the engine's thread; no clock inside.
#pragma once

#include <cstdint>

namespace deltad {

class StepCost {
 public:
  void observe(int32_t generating_rows, int32_t prompt_rows, double seconds);

  double seconds(int32_t generating_rows, int32_t prompt_rows) const;
  // How many prompt rows fit beside the generating ones within the bound; may be negative.
  int64_t prompt_rows_within(double bound, int32_t generating_rows) const;

 private:
  double fixed_ = 0.005;  // before any measurement: a small model on a few cores
  double per_generating_row_ = 0.001;
  double per_prompt_row_ = 0.001;
  // Exponentially weighted means over steps without prompt rows.
  double weight_ = 0, mean_rows_ = 0, mean_seconds_ = 0, variance_ = 0, covariance_ = 0;
  bool prompt_seen_ = false;
};

}  // namespace deltad
