#include "merge/svd.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/cpu_features.h"
#include "merge/linear_kernels.h"
#include "merge/mix.h"

namespace deltad {
namespace {

const LinearKernels& kernels() {
  static const LinearKernels& chosen =
      best_isa() == Isa::kScalar ? linear_kernels_plain() : linear_kernels_avx2();
  return chosen;
}

constexpr int64_t kFloat = sizeof(float);

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

Matrix leading_columns(const Matrix& a, int64_t count) {
  Matrix out(a.rows, count);
  for (int64_t r = 0; r < a.rows; ++r) std::copy_n(a.row(r), count, out.row(r));
  return out;
}

// Numbers of a normal distribution, the same on every machine up to rounding.
Matrix normal_matrix(int64_t rows, int64_t columns, uint64_t seed) {
  Matrix out(rows, columns);
  uint64_t at = 0;
  for (float& value : out.values) {
    const double a = unit_interval(mix(seed, at)), b = unit_interval(mix(seed, at + 1));
    at += 2;
    value = static_cast<float>(std::sqrt(-2 * std::log(1 - a)) * std::cos(2 * M_PI * b));
  }
  return out;
}

void orthonormalize(Matrix* a, Matrix* r) {
  *r = Matrix(a->columns, a->columns);
  kernels().orthonormalize(a->rows, a->columns, a->values.data(), r->values.data());
}

}  // namespace

double inner(const Matrix& a, const Matrix& b) {
  double total = 0;
  for (int64_t r = 0; r < a.rows; ++r) {
    const float *x = a.row(r), *y = b.row(r);
    double lanes[8] = {};
    int64_t c = 0;
    for (; c + 8 <= a.columns; c += 8)
      for (int64_t i = 0; i < 8; ++i)
        lanes[i] += static_cast<double>(x[c + i]) * static_cast<double>(y[c + i]);
    for (; c < a.columns; ++c) lanes[0] += static_cast<double>(x[c]) * static_cast<double>(y[c]);
    for (const double lane : lanes) total += lane;
  }
  return total;
}

double squares(const Matrix& a) { return inner(a, a); }

Result<Svd> exact_svd(const Matrix& a) {
  if (!all_finite(a.values)) return invalid_argument("a value is not a finite number");
  const int64_t p = std::min(a.rows, a.columns);
  Svd svd{Matrix(a.rows, p), std::vector<float>(static_cast<size_t>(p)), Matrix(a.columns, p)};
  if (p == 0) return svd;
  if (!kernels().svd(a.rows, a.columns, a.values.data(), svd.u.values.data(), svd.sigma.data(),
                     svd.v.values.data()) ||
      !all_finite(svd.sigma) || !all_finite(svd.u.values) || !all_finite(svd.v.values))
    return internal_error(fmt::format("the singular value decomposition of a {}×{} matrix failed",
                                      a.rows, a.columns));
  return svd;
}

// What Eigen 3.4 holds at its peak, from its source; bench/merge compares it with what the process
// took. Tall [m, n] after a transposition if need be.
int64_t exact_svd_bytes(int64_t m, int64_t n) {
  if (m < n) std::swap(m, n);
  const int64_t result = m * n + n * n + n;
  // BDCSVD of [x, n]: the scaled copy, the bidiagonal form, U; and squares of side n for the two
  // factors of the divide and conquer, its middle, three of workspace, and V.
  const auto inner_svd = [n](int64_t x) { return 3 * x * n + 7 * n * n; };
  if (m <= n + n / 4) return kFloat * (result + m * n + inner_svd(m));
  return kFloat * (result + std::max(m * n + n * n + inner_svd(n), 2 * m * n + 9 * n * n));
}

Result<Svd> randomized_svd(const Matrix& a, int64_t rank, const RandomizedSvdOptions& options) {
  if (!all_finite(a.values)) return invalid_argument("a value is not a finite number");
  const int64_t smaller = std::min(a.rows, a.columns);
  const int64_t width = std::min(smaller, rank + options.oversampling);
  Matrix r;
  Matrix q =
      multiply(a, As::kIs, normal_matrix(a.columns, width, options.seed), As::kIs);  // [m, width]
  orthonormalize(&q, &r);
  for (int i = 0; i < options.power_iterations; ++i) {
    Matrix z = multiply(a, As::kTransposed, q, As::kIs);  // [n, width]
    orthonormalize(&z, &r);
    q = multiply(a, As::kIs, z, As::kIs);
    orthonormalize(&q, &r);
  }
  // A ≈ Q·(QᵀA), and QᵀA = (Z·R)ᵀ.
  Matrix z = multiply(a, As::kTransposed, q, As::kIs);
  orthonormalize(&z, &r);
  ASSIGN_OR_RETURN(Svd small, exact_svd(r));  // r [width, width] = us·diag·vsᵀ; A ≈ Q·rᵀ·Zᵀ
  Svd svd;
  svd.u = multiply(q, As::kIs, small.v, As::kIs);
  svd.v = multiply(z, As::kIs, small.u, As::kIs);
  svd.sigma = std::move(small.sigma);
  truncate(&svd, std::min(rank, smaller));
  return svd;
}

int64_t randomized_svd_bytes(int64_t m, int64_t n, int64_t rank,
                             const RandomizedSvdOptions& options) {
  const int64_t width = std::min({m, n, rank + options.oversampling});
  // A factor on each side and, of the longer, its copy in columns and q besides.
  return kFloat * ((m + n) * width + 2 * std::max(m, n) * width) + exact_svd_bytes(width, width);
}

Result<Svd> svd_of_product(const Matrix& left, const Matrix& right) {
  // A factor with fewer rows than columns has no thin QR; it stands for itself.
  Matrix q_left = left, q_right = right, r_left, r_right;
  const bool tall_left = left.rows >= left.columns, tall_right = right.rows >= right.columns;
  if (tall_left) orthonormalize(&q_left, &r_left);
  if (tall_right) orthonormalize(&q_right, &r_right);
  const Matrix& a = tall_left ? r_left : left;
  const Matrix& b = tall_right ? r_right : right;
  ASSIGN_OR_RETURN(Svd svd, exact_svd(multiply(a, As::kIs, b, As::kTransposed)));
  if (tall_left) svd.u = multiply(q_left, As::kIs, svd.u, As::kIs);
  if (tall_right) svd.v = multiply(q_right, As::kIs, svd.v, As::kIs);
  return svd;
}

void truncate(Svd* svd, int64_t rank) {
  if (rank >= static_cast<int64_t>(svd->sigma.size())) return;
  svd->u = leading_columns(svd->u, rank);
  svd->v = leading_columns(svd->v, rank);
  svd->sigma.resize(static_cast<size_t>(rank));
}

double energy(const Svd& svd, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < std::min(count, static_cast<int64_t>(svd.sigma.size())); ++i) {
    const double sigma = svd.sigma[static_cast<size_t>(i)];
    sum += sigma * sigma;
  }
  return sum;
}

Matrix multiply(const Matrix& a, As as_a, const Matrix& b, As as_b) {
  const int64_t m = as_a == As::kIs ? a.rows : a.columns, k = as_a == As::kIs ? a.columns : a.rows;
  const int64_t n = as_b == As::kIs ? b.columns : b.rows;
  CHECK(k == (as_b == As::kIs ? b.rows : b.columns), "product of matrices that do not fit");
  Matrix out(m, n);
  kernels().multiply(m, n, k, a.values.data(), as_a == As::kTransposed, b.values.data(),
                     as_b == As::kTransposed, out.values.data());
  return out;
}

void add_triplets(const Svd& svd, int64_t rank, float factor, float scale, Matrix* out) {
  // In bands of rows, so that the product never exists as a whole.
  constexpr int64_t kBand = 256;
  const Matrix v = leading_columns(svd.v, rank);
  for (int64_t first = 0; first < out->rows; first += kBand) {
    Matrix u(std::min(kBand, out->rows - first), rank);
    for (int64_t r = 0; r < u.rows; ++r)
      for (int64_t i = 0; i < rank; ++i)
        u.at(r, i) = svd.u.at(first + r, i) * svd.sigma[static_cast<size_t>(i)] * factor;
    const Matrix product = multiply(u, As::kIs, v, As::kTransposed);
    for (int64_t r = 0; r < u.rows; ++r)
      for (int64_t c = 0; c < out->columns; ++c)
        out->at(first + r, c) = scale * out->at(first + r, c) + product.at(r, c);
  }
}

int64_t add_triplets_bytes(int64_t m, int64_t n, int64_t rank) {
  return kFloat * (n * rank + std::min<int64_t>(m, 256) * (n + rank));
}

}  // namespace deltad
