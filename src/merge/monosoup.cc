#include "merge/monosoup.h"

#include <algorithm>
#include <cmath>

#include "merge/svd.h"

namespace deltad {

Result<MonosoupFigures> monosoup(const KeepRule& rule, double base_norm, Matrix* delta) {
  MonosoupFigures figures;
  const double norm = std::sqrt(squares(*delta));
  if (rule.kind == KeepRule::Kind::kAll || norm == 0 || norm < kSmallestChange * base_norm)
    return figures;
  ASSIGN_OR_RETURN(const Svd svd, exact_svd(*delta));
  const auto p = static_cast<int64_t>(svd.sigma.size());
  figures.changed = true;
  figures.k = rule.count(svd.sigma);
  figures.energy = std::min(1.0, energy(svd, figures.k) / energy(svd, p));
  double rho = 0;
  if (figures.k < p) {
    const double ratio = static_cast<double>(svd.sigma[static_cast<size_t>(figures.k)]) /
                         static_cast<double>(svd.sigma[0]);
    rho = ratio * ratio;
  }
  figures.lambda_low = rho + (1 - rho) * std::sqrt(1 - figures.energy);
  figures.lambda_high = 1 - figures.lambda_low;
  // λ_low·Δ + (λ_high − λ_low)·Δ_high
  add_triplets(svd, figures.k, static_cast<float>(figures.lambda_high - figures.lambda_low),
               static_cast<float>(figures.lambda_low), delta);
  return figures;
}

int64_t monosoup_bytes(int64_t m, int64_t n) {
  const int64_t p = std::min(m, n), result = 4 * (m * p + n * p + p);
  return std::max(exact_svd_bytes(m, n), result + add_triplets_bytes(m, n, p));
}

Result<MonosoupFigures> add_truncated(const KeepRule& rule, const Matrix& delta, double factor,
                                      Matrix* total) {
  MonosoupFigures figures;
  figures.lambda_low = 0;
  if (rule.kind == KeepRule::Kind::kAll) {
    for (size_t i = 0; i < delta.values.size(); ++i)
      total->values[i] += static_cast<float>(factor) * delta.values[i];
    return figures;
  }
  ASSIGN_OR_RETURN(const Svd svd, exact_svd(delta));
  const auto p = static_cast<int64_t>(svd.sigma.size());
  if (p == 0 || svd.sigma[0] == 0) return figures;
  figures.changed = true;
  figures.k = rule.count(svd.sigma);
  figures.energy = energy(svd, figures.k) / energy(svd, p);
  add_triplets(svd, figures.k, static_cast<float>(factor), 1, total);
  return figures;
}

}  // namespace deltad
