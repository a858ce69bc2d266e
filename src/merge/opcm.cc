#include "merge/opcm.h"

#include <algorithm>
#include <cmath>

#include "merge/svd.h"

namespace deltad {
namespace {

int64_t leading_count(const std::vector<float>& sigma, double share) {
  double sum = 0, so_far = 0;
  for (const float s : sigma) sum += static_cast<double>(s);
  for (size_t i = 0; i < sigma.size(); ++i) {
    so_far += static_cast<double>(sigma[i]);
    if (so_far > share * sum) return static_cast<int64_t>(i) + 1;
  }
  return static_cast<int64_t>(sigma.size());
}

}  // namespace

Result<OpcmFigures> add_projected(const Matrix& tau, double share, Matrix* merged) {
  OpcmFigures figures;
  Matrix projected = tau;
  const double tau_squares = squares(tau);
  if (tau_squares > 0 && squares(*merged) > 0) {
    ASSIGN_OR_RETURN(const Svd svd, exact_svd(*merged));
    figures.rank = leading_count(svd.sigma, share);
    Matrix middle = multiply(multiply(svd.u, As::kTransposed, tau, As::kIs), As::kIs, svd.v,
                             As::kIs);  // [p, p]
    for (int64_t r = 0; r < middle.rows; ++r)
      for (int64_t c = 0; c < middle.columns; ++c)
        if (r != c && (r >= figures.rank || c >= figures.rank)) middle.at(r, c) = 0;
    const Matrix removed =
        multiply(multiply(svd.u, As::kIs, middle, As::kIs), As::kIs, svd.v, As::kTransposed);
    for (size_t i = 0; i < projected.values.size(); ++i) projected.values[i] -= removed.values[i];
    figures.kept_norm = std::sqrt(squares(projected) / tau_squares);
  }
  for (size_t i = 0; i < projected.values.size(); ++i) merged->values[i] += projected.values[i];
  return figures;
}

int64_t add_projected_bytes(int64_t m, int64_t n) {
  const int64_t p = std::min(m, n), result = 4 * (m * p + n * p + p);
  // P(τ), and beside it the decomposition at work, or its result with Uᵀτ or U·M, M and what is
  // removed.
  return 4 * m * n +
         std::max(exact_svd_bytes(m, n), result + 4 * (std::max(m, n) * p + p * p + m * n));
}

}  // namespace deltad
