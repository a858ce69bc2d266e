// Low-rank parts: the least error of the output that a rank can leave, against other factors.
#include "calibrate/low_rank_fit.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "merge/svd.h"

namespace deltad {
namespace {

Matrix random_matrix(int64_t rows, int64_t columns, std::mt19937* random) {
  std::normal_distribution<float> normal;
  Matrix out(rows, columns);
  for (float& value : out.values) value = normal(*random);
  return out;
}

// ‖X(Δ − BA)ᵀ‖² + λ‖Δ − BA‖²
double damped_error(const Matrix& x, const Matrix& delta, const Matrix& b, const Matrix& a,
                    double damping) {
  Matrix left = multiply(b, As::kIs, a, As::kIs);
  for (size_t i = 0; i < left.values.size(); ++i) left.values[i] = delta.values[i] - left.values[i];
  const double lambda = damping * squares(x) / static_cast<double>(x.columns);
  return squares(multiply(left, As::kIs, x, As::kTransposed)) + lambda * squares(left);
}

double damped_error(const Matrix& x, const Matrix& delta, const LowRankFit& fit, double damping) {
  Matrix a(fit.factors.rank, fit.factors.inputs), b(fit.factors.outputs, fit.factors.rank);
  a.values = fit.factors.a;
  b.values = fit.factors.b;
  return damped_error(x, delta, b, a, damping);
}

TEST(LowRankFit, LeavesLessThanTheBestForTheWeights) {
  std::mt19937 random(8);
  for (const auto& [tokens, columns, rows] :
       {std::array<int64_t, 3>{40, 24, 17}, {9, 50, 20}, {3, 12, 31}}) {
    Matrix x = random_matrix(tokens, columns, &random);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t c = 0; c < 4; ++c) x.at(t, c) = 6 * x.at(t, c) + 3;  // a few strong inputs
    const Matrix delta = random_matrix(rows, columns, &random);
    const Svd svd = *exact_svd(delta);
    double before = 1e300;
    for (const int64_t rank : {1, 3, 8}) {
      const auto fit = fit_low_rank(x, delta, rank, 0.5);
      ASSERT_TRUE(fit.ok()) << fit.status().message();
      EXPECT_NEAR(fit->energy, squares(multiply(delta, As::kIs, x, As::kTransposed)),
                  1e-4 * fit->energy);
      Matrix b(rows, rank), a(rank, columns);
      for (int64_t k = 0; k < rank; ++k) {
        for (int64_t r = 0; r < rows; ++r)
          b.at(r, k) = svd.u.at(r, k) * svd.sigma[static_cast<size_t>(k)];
        for (int64_t c = 0; c < columns; ++c) a.at(k, c) = svd.v.at(c, k);
      }
      const double error = damped_error(x, delta, *fit, 0.5);
      EXPECT_LT(error, 0.97 * damped_error(x, delta, b, a, 0.5)) << "rank " << rank;
      EXPECT_LT(error, before);
      before = error;
    }
  }
}

// What each rank leaves, against the outputs themselves of Δ without the ranks up to it.
TEST(LowRankFit, SaysWhatEachRankLeaves) {
  std::mt19937 random(10);
  const Matrix x = random_matrix(30, 24, &random), delta = random_matrix(17, 24, &random);
  const auto fit = fit_low_rank(x, delta, 6, 0.5);
  ASSERT_TRUE(fit.ok()) << fit.status().message();
  const std::vector<double> shares = fit->shares_left();
  ASSERT_EQ(shares.size(), 7u);
  const AdapterFactors& factors = fit->factors;
  Matrix left = delta;
  for (int64_t rank = 0;; ++rank) {
    const double output = squares(multiply(left, As::kIs, x, As::kTransposed));
    EXPECT_NEAR(shares[static_cast<size_t>(rank)], output / fit->energy, 1e-4) << rank;
    if (rank == 6) break;
    EXPECT_GT(shares[static_cast<size_t>(rank)], shares[static_cast<size_t>(rank + 1)] + 1e-3);
    for (int64_t r = 0; r < left.rows; ++r)
      for (int64_t c = 0; c < left.columns; ++c)
        left.at(r, c) -= factors.b[static_cast<size_t>(r * 6 + rank)] *
                         factors.a[static_cast<size_t>(rank * 24 + c)];
  }
}

TEST(LowRankFit, AllRanksLeaveNothing) {
  std::mt19937 random(9);
  const Matrix x = random_matrix(5, 12, &random), delta = random_matrix(7, 12, &random);
  const auto fit = fit_low_rank(x, delta, 7, 20);
  ASSERT_TRUE(fit.ok()) << fit.status().message();
  EXPECT_LT(damped_error(x, delta, *fit, 20), 1e-6 * fit->energy);
  // Without activations the weights count.
  const auto blind = fit_low_rank(Matrix(5, 12), delta, 7, 20);
  ASSERT_TRUE(blind.ok()) << blind.status().message();
  EXPECT_LT(damped_error(x, delta, *blind, 20), 1e-6 * fit->energy);
}

}  // namespace
}  // namespace deltad
