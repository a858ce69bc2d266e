// The oracle of the linear layer: fp64 sums over row-major weights and one byte a sign. Slow and
// obvious; for tests and benchmarks.
#pragma once

#include <cstdint>
#include <vector>

namespace deltad::ref {

struct SignLevel {
  const int8_t* signs;  // [rows, columns], −1 or +1
  const float* alpha;   // [rows]
};

// y[o] = Σ_c W[o, c]·x[c]; W bf16 [rows, columns].
std::vector<double> product(const uint16_t* w, const float* x, int64_t rows, int64_t columns);

// y[o] = Σ_level α[o]·Σ_c S[o, c]·x[c].
std::vector<double> sign_product(const std::vector<SignLevel>& levels, const float* x, int64_t rows,
                                 int64_t columns);

// One part of a weight: y[o] = s·Σ_k B[o, k]·Σ_c A[k, c]·x[c].
struct LowRankPart {
  int64_t rank;
  double scale;
  const float* a;  // [rank, columns]
  const float* b;  // [rows, rank]
};
std::vector<double> low_rank_product(const LowRankPart& part, const float* x, int64_t rows,
                                     int64_t columns);

double silu(double v);

}  // namespace deltad::ref
