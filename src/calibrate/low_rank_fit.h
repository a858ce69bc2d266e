// The low-rank part of a matrix beside its signs: factors B·A that leave the least of the output,
// ‖X(Δ − BA)ᵀ‖² + λ‖Δ − BA‖², X being the activations that enter the matrix. λ keeps the factors
// from serving the few strong directions of X alone, as the damping of signs does. Pure functions;
// any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "delta/adapter_factors.h"
#include "merge/matrix.h"
#include "merge/svd.h"

namespace deltad {

struct LowRankFit {
  AdapterFactors factors;
  double energy = 0;          // ‖XΔᵀ‖²
  std::vector<double> taken;  // [rank]: what each rank takes off it

  // Of ‖XΔᵀ‖², what each of the ranks 0, 1, … leaves, as a share.
  std::vector<double> shares_left() const;
};

// x [tokens, d_in], delta [d_out, d_in], rank ≤ both of its sizes; damping: λ in mean energies of a
// column of X. kInvalidArgument if a value is not finite.
Result<LowRankFit> fit_low_rank(const Matrix& x, const Matrix& delta, int64_t rank, double damping,
                                const RandomizedSvdOptions& svd = {});

}  // namespace deltad
