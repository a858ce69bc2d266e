// MonoSoup (arXiv 2602.09689) on one matrix, in its two forms. Pure functions, any thread.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "merge/keep_rule.h"
#include "merge/matrix.h"

namespace deltad {

// Below this ‖Δ‖/‖W0‖ the published form leaves a matrix as it is.
constexpr double kSmallestChange = 1e-6;

struct MonosoupFigures {
  bool changed = false;  // false: ‖Δ‖ too small, Δ is kept as it is
  int64_t k = 0;
  double energy = 0;  // P, kept by the leading k
  double lambda_low = 1, lambda_high = 1;
};

// Published form, for one checkpoint: Δ becomes λ_high·Δ_high + λ_low·Δ_low. base_norm: ‖W0‖.
Result<MonosoupFigures> monosoup(const KeepRule& rule, double base_norm, Matrix* delta);
int64_t monosoup_bytes(int64_t m, int64_t n);  // at its peak, beyond Δ

// Averaged form: total += factor · trunc_k(Δ). λ_low and λ_high are 0 and 1 in its figures.
Result<MonosoupFigures> add_truncated(const KeepRule& rule, const Matrix& delta, double factor,
                                      Matrix* total);

}  // namespace deltad
