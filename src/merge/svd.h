// Singular value decompositions and matrix products in fp32: A ≈ U·diag(σ)·Vᵀ with σ falling and
// the columns of U and V orthonormal. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "merge/matrix.h"

namespace deltad {

struct Svd {
  Matrix u;                  // [m, p]
  std::vector<float> sigma;  // [p]
  Matrix v;                  // [n, p]
};

// p = min(m, n). kInvalidArgument if a value is not finite.
Result<Svd> exact_svd(const Matrix& a);
// Bytes at its peak beyond `a` itself, the result included.
int64_t exact_svd_bytes(int64_t m, int64_t n);

struct RandomizedSvdOptions {
  int64_t oversampling = 16;
  int power_iterations = 2;
  uint64_t seed = 1;
};
// The leading p = min(rank, m, n) triplets (Halko, Martinsson and Tropp 2011, with an orthonormal
// basis after each product). A·V = U·diag(σ) holds for what was found, so that Σσ² is the energy
// that U·diag(σ)·Vᵀ really keeps and ‖A‖² − Σσ² the exact square of its error.
Result<Svd> randomized_svd(const Matrix& a, int64_t rank, const RandomizedSvdOptions& options);
int64_t randomized_svd_bytes(int64_t m, int64_t n, int64_t rank,
                             const RandomizedSvdOptions& options);

// The decomposition of left · rightᵀ, left [m, k], right [n, k], from the factors alone:
// p = min(m, n, k).
Result<Svd> svd_of_product(const Matrix& left, const Matrix& right);

void truncate(Svd* svd, int64_t rank);
// Σ_{i<count} σ²
double energy(const Svd& svd, int64_t count);

enum class As { kIs, kTransposed };
// Aᵃˢ · Bᵃˢ
Matrix multiply(const Matrix& a, As as_a, const Matrix& b, As as_b);
// out = scale·out + factor · U[:, :rank] · diag(σ) · V[:, :rank]ᵀ
void add_triplets(const Svd& svd, int64_t rank, float factor, float scale, Matrix* out);
int64_t add_triplets_bytes(int64_t m, int64_t n, int64_t rank);

}  // namespace deltad
