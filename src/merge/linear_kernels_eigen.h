// The one implementation of LinearKernels; linear_kernels.cc and linear_kernels_avx2.cc compile it
// with their own flags. Each renames Eigen's namespace before it includes this, since the linker
// would otherwise merge the functions of both and might hand AVX2 code to a CPU without. For the
// same reason nothing here uses containers of the standard library.
#pragma once

#include <Eigen/Dense>

#include "merge/linear_kernels.h"

namespace deltad {
namespace {

using Columns = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;
using Rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using RowsIn = Eigen::Map<const Rows>;
using RowsOut = Eigen::Map<Rows>;

// tall [m, n], m ≥ n; it is used up.
bool tall_svd(Columns* tall, RowsOut u, float* s, RowsOut v) {
  const Eigen::Index m = tall->rows(), n = tall->cols();
  constexpr unsigned kThin = Eigen::ComputeThinU | Eigen::ComputeThinV;
  // QR first makes the two-sided work square. It pays as soon as the matrix is not: 8192×2048 takes
  // 3.3 s instead of 6.2.
  if (m > n + n / 4) {
    Eigen::HouseholderQR<Eigen::Ref<Columns>> qr(*tall);
    const Columns r = qr.matrixQR().topRows(n).triangularView<Eigen::Upper>();
    const Eigen::BDCSVD<Columns> svd(r, kThin);
    if (svd.info() != Eigen::Success) return false;
    Eigen::Map<Eigen::VectorXf>(s, n) = svd.singularValues();
    v = svd.matrixV();
    Columns wide = Columns::Zero(m, n);
    wide.topRows(n) = svd.matrixU();
    wide.applyOnTheLeft(qr.householderQ());
    u = wide;
    return true;
  }
  const Eigen::BDCSVD<Columns> svd(*tall, kThin);
  if (svd.info() != Eigen::Success) return false;
  Eigen::Map<Eigen::VectorXf>(s, n) = svd.singularValues();
  u = svd.matrixU();
  v = svd.matrixV();
  return true;
}

bool svd(int64_t m, int64_t n, const float* a, float* u, float* s, float* v) {
  const int64_t p = m < n ? m : n;
  if (m >= n) {
    Columns tall = RowsIn(a, m, n);
    return tall_svd(&tall, RowsOut(u, m, p), s, RowsOut(v, n, p));
  }
  Columns tall = Eigen::Map<const Columns>(a, n, m);  // aᵀ
  return tall_svd(&tall, RowsOut(v, n, p), s, RowsOut(u, m, p));
}

void multiply(int64_t m, int64_t n, int64_t k, const float* a, bool a_transposed, const float* b,
              bool b_transposed, float* out) {
  RowsOut to(out, m, n);
  if (!a_transposed && !b_transposed)
    to.noalias() = RowsIn(a, m, k) * RowsIn(b, k, n);
  else if (!a_transposed)
    to.noalias() = RowsIn(a, m, k) * RowsIn(b, n, k).transpose();
  else if (!b_transposed)
    to.noalias() = RowsIn(a, k, m).transpose() * RowsIn(b, k, n);
  else
    to.noalias() = RowsIn(a, k, m).transpose() * RowsIn(b, n, k).transpose();
}

void orthonormalize(int64_t m, int64_t n, float* a, float* r) {
  Columns columns = RowsIn(a, m, n);
  Eigen::HouseholderQR<Eigen::Ref<Columns>> qr(columns);
  RowsOut(r, n, n) = Columns(qr.matrixQR().topRows(n).triangularView<Eigen::Upper>());
  Columns q = Columns::Identity(m, n);
  q.applyOnTheLeft(qr.householderQ());
  RowsOut(a, m, n) = q;
}

constexpr LinearKernels kKernels = {svd, multiply, orthonormalize};

}  // namespace
}  // namespace deltad
