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

// Keeps the diagonal and the leading block.
void mask(int64_t rank, Matrix* middle) {
  for (int64_t r = 0; r < middle->rows; ++r)
    for (int64_t c = 0; c < middle->columns; ++c)
      if (r != c && (r >= rank || c >= rank)) middle->at(r, c) = 0;
}

Matrix transposed(const Matrix& in) {
  Matrix out(in.columns, in.rows);
  for (int64_t r = 0; r < in.rows; ++r)
    for (int64_t c = 0; c < in.columns; ++c) out.at(c, r) = in.at(r, c);
  return out;
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
    mask(figures.rank, &middle);
    const Matrix removed =
        multiply(multiply(svd.u, As::kIs, middle, As::kIs), As::kIs, svd.v, As::kTransposed);
    for (size_t i = 0; i < projected.values.size(); ++i) projected.values[i] -= removed.values[i];
    figures.kept_norm = std::sqrt(squares(projected) / tau_squares);
  }
  for (size_t i = 0; i < projected.values.size(); ++i) merged->values[i] += projected.values[i];
  return figures;
}

// λ·UΣVᵀ + τ − U·mask(UᵀτV)·Vᵀ = [U·(λΣ − mask(UᵀτV)), B] · [V, Aᵀ]ᵀ
Result<Truncated> add_projected_low_rank(const LowRank& merged, double lambda, const LowRank& tau,
                                         double share, int64_t rank) {
  if (merged.b.rows != tau.b.rows || merged.a.columns != tau.a.columns)
    return invalid_argument("shapes that differ");
  ASSIGN_OR_RETURN(Svd svd, svd_of_product(merged.b, transposed(merged.a)));
  constexpr float kZero = 1e-6f;  // of the largest
  int64_t count = 0;
  while (count < static_cast<int64_t>(svd.sigma.size()) &&
         svd.sigma[static_cast<size_t>(count)] > 0 &&
         svd.sigma[static_cast<size_t>(count)] > kZero * svd.sigma[0])
    ++count;
  truncate(&svd, count);
  Matrix core = multiply(multiply(svd.u, As::kTransposed, tau.b, As::kIs), As::kIs,
                         multiply(tau.a, As::kIs, svd.v, As::kIs), As::kIs);
  mask(leading_count(svd.sigma, share), &core);
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < count; ++c)
      core.at(r, c) =
          (r == c ? static_cast<float>(lambda) * svd.sigma[static_cast<size_t>(r)] : 0) -
          core.at(r, c);
  const Matrix left_part = multiply(svd.u, As::kIs, core, As::kIs);
  const int64_t tau_rank = tau.a.rows;
  Matrix left(tau.b.rows, count + tau_rank), right(tau.a.columns, count + tau_rank);
  for (int64_t r = 0; r < left.rows; ++r) {
    std::copy_n(left_part.row(r), count, left.row(r));
    std::copy_n(tau.b.row(r), tau_rank, left.row(r) + count);
  }
  for (int64_t r = 0; r < right.rows; ++r) {
    std::copy_n(svd.v.row(r), count, right.row(r));
    for (int64_t i = 0; i < tau_rank; ++i) right.at(r, count + i) = tau.a.at(i, r);
  }
  ASSIGN_OR_RETURN(Svd sum, svd_of_product(left, right));
  const double all = energy(sum, static_cast<int64_t>(sum.sigma.size()));
  return factors_of(std::move(sum), rank, all);
}

int64_t add_projected_bytes(int64_t m, int64_t n) {
  const int64_t p = std::min(m, n), result = 4 * (m * p + n * p + p);
  // P(τ), and beside it the decomposition at work, or its result with Uᵀτ or U·M, M and what is
  // removed.
  return 4 * m * n +
         std::max(exact_svd_bytes(m, n), result + 4 * (std::max(m, n) * p + p * p + m * n));
}

}  // namespace deltad
