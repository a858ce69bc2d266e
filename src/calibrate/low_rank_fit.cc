#include "calibrate/low_rank_fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

namespace deltad {

std::vector<double> LowRankFit::shares_left() const {
  std::vector<double> shares = {1};
  double left = energy;
  for (const double rank : taken) {
    left = std::max(0.0, left - rank);
    shares.push_back(energy > 0 ? left / energy : 1);
  }
  return shares;
}

// Of W = [ΔXᵀ, √λ·Δ] the leading left singular vectors U are the best basis of the outputs: what
// BA = U·UᵀΔ leaves, ‖W − UUᵀW‖², is the least that this rank can.
Result<LowRankFit> fit_low_rank(const Matrix& x, const Matrix& delta, int64_t rank, double damping,
                                const RandomizedSvdOptions& options) {
  const int64_t tokens = x.rows, columns = delta.columns;
  const double energy = squares(x) / static_cast<double>(columns);
  // Where X says nothing, Δ itself counts.
  const auto root = static_cast<float>(energy > 0 ? std::sqrt(damping * energy) : 1.0);
  LowRankFit fit;
  Matrix weighted(delta.rows, tokens + columns);
  {
    const Matrix output = multiply(delta, As::kIs, x, As::kTransposed);
    fit.energy = squares(output);
    if (!std::isfinite(fit.energy))
      return invalid_argument(
          "the activations that enter the matrix, or what it makes of them, are not all finite "
          "numbers, as they must be");
    for (int64_t r = 0; r < delta.rows; ++r) {
      float* row = weighted.row(r);
      std::copy_n(output.row(r), tokens, row);
      for (int64_t c = 0; c < columns; ++c) row[tokens + c] = root * delta.at(r, c);
    }
  }
  ASSIGN_OR_RETURN(Svd svd, randomized_svd(weighted, rank, options));
  weighted = {};
  Matrix a = multiply(svd.u, As::kTransposed, delta, As::kIs);
  // U's columns are orthonormal, so ranks take off apart from each other.
  const Matrix outputs = multiply(a, As::kIs, x, As::kTransposed);  // [rank, tokens]
  for (int64_t k = 0; k < rank; ++k) {
    const float* row = outputs.row(k);
    fit.taken.push_back(std::accumulate(row, row + tokens, 0.0, [](double sum, float v) {
      return sum + static_cast<double>(v) * static_cast<double>(v);
    }));
  }
  fit.factors = {rank, columns, delta.rows, 1, std::move(a.values), std::move(svd.u.values)};
  return fit;
}

}  // namespace deltad
