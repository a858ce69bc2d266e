// Decompositions of matrices with known spectra, on every instruction set there is.
#include "merge/svd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/cpu_features.h"
#include "merge/linear_kernels.h"
#include "reference.h"

namespace deltad {
namespace {

using testing::expect_close;
using testing::kMatrices;
using testing::Reference;

Matrix rebuilt(const Svd& svd, int64_t rows, int64_t columns) {
  Matrix out(rows, columns);
  add_triplets(svd, static_cast<int64_t>(svd.sigma.size()), 1, 1, &out);
  return out;
}

void expect_orthonormal(const Matrix& q, const std::string& what) {
  Matrix identity(q.columns, q.columns);
  for (int64_t i = 0; i < q.columns; ++i) identity.at(i, i) = 1;
  expect_close(multiply(q, As::kTransposed, q, As::kIs), identity, 1e-5, what);
}

TEST(ExactSvd, HasTheSpectrumAndGivesTheMatrixBack) {
  const Reference reference;
  for (const std::string name : kMatrices) {
    const Matrix a = reference.matrix(name + ".delta");
    const Matrix expected = reference.matrix(name + ".sigma");
    auto svd = exact_svd(a);
    ASSERT_TRUE(svd.ok()) << name << svd.status().message();
    Matrix sigma(1, static_cast<int64_t>(svd->sigma.size()));
    sigma.values = svd->sigma;
    expect_close(sigma, expected, 2e-6, name);
    EXPECT_TRUE(std::is_sorted(svd->sigma.rbegin(), svd->sigma.rend())) << name;
    expect_close(rebuilt(*svd, a.rows, a.columns), a, 5e-6, name);
    expect_orthonormal(svd->u, name + " U");
    expect_orthonormal(svd->v, name + " V");
  }
}

TEST(LinearKernels, AgreeOnEveryInstructionSet) {
  if (best_isa() == Isa::kScalar) GTEST_SKIP() << "no AVX2 here";
  const Reference reference;
  for (const std::string name : kMatrices) {
    const Matrix a = reference.matrix(name + ".delta");
    const int64_t m = a.rows, n = a.columns, p = std::min(m, n);
    std::vector<Matrix> sigmas, products;
    for (const LinearKernels* kernels : {&linear_kernels_plain(), &linear_kernels_avx2()}) {
      Matrix u(m, p), s(1, p), v(n, p), product(m, m);
      ASSERT_TRUE(
          kernels->svd(m, n, a.values.data(), u.values.data(), s.values.data(), v.values.data()));
      kernels->multiply(m, m, n, a.values.data(), false, a.values.data(), true,
                        product.values.data());
      sigmas.push_back(s);
      products.push_back(product);
    }
    expect_close(sigmas[0], sigmas[1], 2e-6, name);
    expect_close(products[0], products[1], 2e-6, name);
  }
}

TEST(ExactSvd, RefusesWhatIsNotFinite) {
  Matrix a(3, 4);
  a.at(1, 2) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(exact_svd(a).status().code(), Code::kInvalidArgument);
  a.at(1, 2) = std::numeric_limits<float>::infinity();
  EXPECT_EQ(randomized_svd(a, 2, {}).status().code(), Code::kInvalidArgument);
}

// The energy that it says it keeps is the energy that its product has and lacks, and nearly the
// best there is.
TEST(RandomizedSvd, StatesItsErrorAndIsNearTheBest) {
  const Reference reference;
  for (const std::string name : kMatrices) {
    const Matrix a = reference.matrix(name + ".delta");
    const Matrix sigma = reference.matrix(name + ".sigma");
    RandomizedSvdOptions options;
    options.oversampling = 4;
    auto svd = randomized_svd(a, 5, options);
    ASSERT_TRUE(svd.ok()) << name;
    const int64_t rank = static_cast<int64_t>(svd->sigma.size());
    EXPECT_EQ(rank, std::min<int64_t>({5, a.rows, a.columns}));
    Matrix rest = rebuilt(*svd, a.rows, a.columns);
    for (size_t i = 0; i < rest.values.size(); ++i) rest.values[i] = a.values[i] - rest.values[i];
    const double all = squares(a), kept = energy(*svd, rank);
    EXPECT_NEAR(squares(rest), all - kept, 1e-5 * all) << name;
    double best = 0;
    for (int64_t i = 0; i < rank; ++i)
      best += static_cast<double>(sigma.at(0, i)) * static_cast<double>(sigma.at(0, i));
    EXPECT_LE(kept, best * (1 + 1e-5)) << name;
    EXPECT_GE(kept, best * (1 - 1e-3)) << name;
  }
}

TEST(SvdOfProduct, IsThatOfTheFormedProduct) {
  const Reference reference;
  for (const auto& [x, y] : {std::pair{"lora.0", "lora.0"}, std::pair{"lora.2", "lora.2"},
                             std::pair{"lora.3", "lora.3"}}) {
    const Matrix left = reference.matrix(std::string(x) + ".b");
    const Matrix a = reference.matrix(std::string(y) + ".a");
    Matrix right(a.columns, a.rows);
    for (int64_t r = 0; r < a.rows; ++r)
      for (int64_t c = 0; c < a.columns; ++c) right.at(c, r) = a.at(r, c);
    auto svd = svd_of_product(left, right);
    ASSERT_TRUE(svd.ok());
    const Matrix formed = multiply(left, As::kIs, right, As::kTransposed);
    expect_close(rebuilt(*svd, formed.rows, formed.columns), formed, 5e-6, x);
  }
}

TEST(SvdOfProduct, TakesFactorsThatAreWiderThanHigh) {
  const Reference reference;
  const Matrix wide = reference.matrix("wide.delta");  // [12, 40]
  auto svd = svd_of_product(wide, wide);
  ASSERT_TRUE(svd.ok());
  expect_close(rebuilt(*svd, 12, 12), multiply(wide, As::kIs, wide, As::kTransposed), 5e-6, "wide");
}

}  // namespace
}  // namespace deltad
