// Low-rank deltas Δ = B·A as their factors: how alike two are, their average, and the best factors
// for a matrix. What a bounded pool of adapters decides and merges by (K-Merge, arXiv 2510.13537).
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/status.h"
#include "merge/matrix.h"
#include "merge/svd.h"

namespace deltad {

struct LowRank {
  Matrix b;  // [d_out, r], the adapter's scale s included
  Matrix a;  // [r, d_in]
};

// vec(B₁A₁)·vec(B₂A₂), in O(r²·(d_in + d_out)); the shapes of BA are equal.
double inner(const LowRank& x, const LowRank& y);
// Of the angle between BA and BA as vectors; 0 if either is 0.
double cosine(const LowRank& x, const LowRank& y);

using LowRankSet = std::map<std::string, LowRank>;  // by weight
// The mean over the layers that either adapts; a layer that one lacks counts as 0 there.
// kInvalidArgument names a layer whose shapes differ.
Result<double> similarity(const LowRankSet& x, const LowRankSet& y);

struct Truncated {
  LowRank factors;         // B = U√Σ, A = √Σ·Vᵀ, so that both have the same size
  double kept_energy = 1;  // ‖BA‖²/‖Δ‖²; 1 if Δ is 0
};
// Factors of `rank` (or of as many as there are) from a decomposition of a matrix with ‖Δ‖² =
// squares.
Truncated factors_of(Svd svd, int64_t rank, double squares);

// Σ weight·BA, re-truncated to `rank`, from the factors alone.
Result<Truncated> weighted_sum(const LowRank& x, double x_weight, const LowRank& y, double y_weight,
                               int64_t rank);
// The member, which is the average of `held` adapters, with one more: (1 − 1/n)·member +
// 1/n·newcomer for n = held + 1, re-truncated to `rank`.
Result<Truncated> running_average(const LowRank& member, int64_t held, const LowRank& newcomer,
                                  int64_t rank);

}  // namespace deltad
