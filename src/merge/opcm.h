// OPCM (orthogonal projection-based continual merging, arXiv 2501.09522): one matrix of one step.
// Pure functions, any thread. The sequence and its scaling: merge/opcm_state.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "merge/low_rank.h"
#include "merge/matrix.h"

namespace deltad {

struct OpcmFigures {
  int64_t rank = 0;  // r, the side of the block that is removed; 0: nothing was there to project on
  double kept_norm = 1;  // ‖P(τ)‖/‖τ‖
};

// merged += P(τ), P(τ) = τ − U·mask(Uᵀ·τ·V)·Vᵀ with merged = U·diag(σ)·Vᵀ, where mask keeps the
// diagonal and the leading r×r block; r is the first with Σ_{i≤r}σ/Σσ > share.
Result<OpcmFigures> add_projected(const Matrix& tau, double share, Matrix* merged);
int64_t add_projected_bytes(int64_t m, int64_t n);  // at its peak, beyond tau and merged

// The same for low-rank factors, from the factors alone: λ·merged + P(τ), re-truncated to `rank`.
// Only directions with a singular value that is not 0 are projected on.
Result<Truncated> add_projected_low_rank(const LowRank& merged, double lambda, const LowRank& tau,
                                         double share, int64_t rank);

}  // namespace deltad
