// Signs and α of a block of a matrix's rows, fitted to the activations X that enter it: what
// counts is the error of the output, ‖X(δ − Σ αₗsₗ)‖² of each row δ of Δ, and C = XᵀX is all of X
// that it needs. The α of given signs are a least-squares fit in closed form. The signs begin as
// those of what the levels before leave; sweeps then give each column in turn the best of its
// 2^levels values beside what the others have (coordinate descent), and fit α again. Pure
// functions; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace deltad {

// C = XᵀX [columns, columns], row-major.
struct GramMatrix {
  int64_t columns = 0;
  std::vector<float> values;

  double mean_diagonal() const;
};

// The Gram matrix of x [rows, columns]; computed on `threads` threads.
GramMatrix gram_matrix(const float* x, int64_t rows, int64_t columns, int threads);

// The normal equations of α: of a row, or summed over rows that share their α.
struct AlphaEquations {
  using PerLevel = std::array<double, kMaxLevels>;
  std::array<PerLevel, kMaxLevels> gram{};  // sₓ C s_y
  PerLevel right{};                         // sₓ C δ
  double energy = 0;                        // δ C δ = ‖Xδ‖²

  void add(const AlphaEquations& other);
  // The best α. A level that adds nothing to those before it gets 0.
  PerLevel solve(int levels) const;
  // ‖X(δ − Σ αₗsₗ)‖²
  double error(int levels, const PerLevel& alpha) const;
};

struct SignFitOptions {
  int levels = 1;
  int sweeps = 0;         // 0: signs stay, only α is fitted
  double damping = 0.01;  // of the mean diagonal of C, added to it while signs are chosen: fewer
                          // tokens than columns say nothing about some directions
  // α of each level that the signs begin with; empty: the row's own means of |Δ|.
  std::vector<float> start = {};
};

// A block of rows while it is fitted. Values lie column by column: [columns, rows].
struct RowsFit {
  int64_t rows = 0, columns = 0;
  std::vector<float> delta;               // [columns, rows]
  std::vector<std::vector<float>> signs;  // of each level: ±1 [columns, rows]
  std::vector<std::vector<float>> alpha;  // of each level: [rows]
  std::vector<AlphaEquations> equations;  // [rows]: of these signs
  std::vector<double> error;              // [rows]: ‖X(δ − δ̂)‖²
  std::vector<double> plain_error;        // [rows]: the same of what it began with

  // δ − δ̂ [columns, rows].
  std::vector<float> residual() const;
};

// delta [rows, columns], finite. No row gets a larger error than with the α that it began with;
// rows on which C says nothing keep those.
RowsFit fit_rows(const GramMatrix& gram, int64_t rows, const double* delta,
                 const SignFitOptions& options);

}  // namespace deltad
