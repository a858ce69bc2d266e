#include "merge/low_rank.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace deltad {
namespace {

std::string shape_of(const LowRank& x) { return fmt::format("[{}, {}]", x.b.rows, x.a.columns); }

bool same_shape(const LowRank& x, const LowRank& y) {
  return x.b.rows == y.b.rows && x.a.columns == y.a.columns;
}

}  // namespace

// ⟨B₁A₁, B₂A₂⟩ = tr(A₁ᵀB₁ᵀB₂A₂) = Σ (B₁ᵀB₂) ∘ (A₁A₂ᵀ)
double inner(const LowRank& x, const LowRank& y) {
  return inner(multiply(x.b, As::kTransposed, y.b, As::kIs),
               multiply(x.a, As::kIs, y.a, As::kTransposed));
}

double cosine(const LowRank& x, const LowRank& y) {
  const double size = std::sqrt(inner(x, x)) * std::sqrt(inner(y, y));
  return size > 0 ? std::clamp(inner(x, y) / size, -1.0, 1.0) : 0;
}

Result<double> similarity(const LowRankSet& x, const LowRankSet& y) {
  double sum = 0;
  int64_t layers = static_cast<int64_t>(y.size());
  for (const auto& [name, mine] : x) {
    const auto theirs = y.find(name);
    if (theirs == y.end()) {
      ++layers;
      continue;
    }
    if (!same_shape(mine, theirs->second))
      return invalid_argument(fmt::format("'{}': its shape is {} in one and {} in the other", name,
                                          shape_of(mine), shape_of(theirs->second)));
    sum += cosine(mine, theirs->second);
  }
  return layers > 0 ? sum / static_cast<double>(layers) : 0;
}

Truncated factors_of(Svd svd, int64_t rank, double squares) {
  truncate(&svd, rank);
  const auto r = static_cast<int64_t>(svd.sigma.size());
  Truncated out;
  out.factors.b = Matrix(svd.u.rows, r);
  out.factors.a = Matrix(r, svd.v.rows);
  for (int64_t i = 0; i < r; ++i) {
    const float root = std::sqrt(svd.sigma[static_cast<size_t>(i)]);
    for (int64_t row = 0; row < svd.u.rows; ++row)
      out.factors.b.at(row, i) = svd.u.at(row, i) * root;
    for (int64_t c = 0; c < svd.v.rows; ++c) out.factors.a.at(i, c) = svd.v.at(c, i) * root;
  }
  if (squares > 0) out.kept_energy = std::min(1.0, energy(svd, r) / squares);
  return out;
}

Result<Truncated> weighted_sum(const LowRank& x, double x_weight, const LowRank& y, double y_weight,
                               int64_t rank) {
  if (!same_shape(x, y))
    return invalid_argument(fmt::format("shapes that differ: {} and {}", shape_of(x), shape_of(y)));
  const int64_t rx = x.b.columns, ry = y.b.columns;
  Matrix left(x.b.rows, rx + ry), right(x.a.columns, rx + ry);
  for (int64_t row = 0; row < left.rows; ++row) {
    for (int64_t i = 0; i < rx; ++i)
      left.at(row, i) = static_cast<float>(x_weight) * x.b.at(row, i);
    for (int64_t i = 0; i < ry; ++i)
      left.at(row, rx + i) = static_cast<float>(y_weight) * y.b.at(row, i);
  }
  for (int64_t c = 0; c < right.rows; ++c) {
    for (int64_t i = 0; i < rx; ++i) right.at(c, i) = x.a.at(i, c);
    for (int64_t i = 0; i < ry; ++i) right.at(c, rx + i) = y.a.at(i, c);
  }
  ASSIGN_OR_RETURN(Svd svd, svd_of_product(left, right));
  const double squares = energy(svd, static_cast<int64_t>(svd.sigma.size()));
  return factors_of(std::move(svd), rank, squares);
}

Result<Truncated> running_average(const LowRank& member, int64_t held, const LowRank& newcomer,
                                  int64_t rank) {
  const double n = static_cast<double>(held) + 1;
  return weighted_sum(member, 1 - 1 / n, newcomer, 1 / n, rank);
}

}  // namespace deltad
