// Signs and α of a block of a matrix's rows, fitted to the activations X that enter it: what
// counts is the error of the output, ‖X(δ − Σ αₗsₗ)‖² of each row δ of Δ. The α of given signs are
// a least-squares fit in closed form. The signs begin as those of what the levels before leave;
// sweeps then give each column in turn the best of its 2^levels values beside what the others have
// (coordinate descent), and fit α again. Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "calibrate/fit_input.h"

namespace deltad {

// The normal equations of α: of a row, or summed over rows that share their α.
struct AlphaEquations {
  using PerLevel = std::array<double, kMaxLevels>;
  std::array<PerLevel, kMaxLevels> gram{};  // ⟨Xsₓ, Xs_y⟩
  PerLevel right{};                         // ⟨Xsₓ, Xδ⟩
  double energy = 0;                        // ‖Xδ‖²

  void add(const AlphaEquations& other);
  // The best α. A level that adds nothing to those before it gets 0.
  PerLevel solve(int levels) const;
  // ‖X(δ − Σ αₗsₗ)‖²
  double error(int levels, const PerLevel& alpha) const;
};

struct SignFitOptions {
  int levels = 1;
  int sweeps = 0;         // 0: signs stay, only α is fitted
  double damping = 0.01;  // of the mean energy of a column of X, added to that of each while signs
                          // are chosen: fewer tokens than columns say nothing about some directions
  // α of each level that the signs begin with; empty: the row's own means of |Δ|.
  std::vector<float> start = {};
};

// A block of rows while it is fitted; kept from block to block, so that little is allocated. Values
// lie in strips (strip_kernels.h).
struct RowsFit {
  int64_t rows = 0, columns = 0, strip_columns = 0;  // strip_columns: with padding
  std::vector<float> delta;
  std::vector<std::vector<float>> signs;  // of each level: ±1
  std::vector<std::vector<float>> alpha;  // of each level: [rows, padded]
  std::vector<AlphaEquations> equations;  // [rows]: of these signs
  std::vector<double> error;              // [rows]: ‖X(δ − δ̂)‖²
  std::vector<double> plain_error;        // [rows]: the same of what it began with
  StripSums sums;                         // of δ
  int64_t bad_row = -1;                   // the first one whose values are too large or no numbers

  int64_t strips() const { return (rows + kStripRows - 1) / kStripRows; }
  size_t strip_at(int64_t strip) const {
    return static_cast<size_t>(strip * strip_columns * kStripRows);
  }
  size_t at(int64_t row, int64_t column) const {
    return strip_at(row / kStripRows) + static_cast<size_t>(column * kStripRows + row % kStripRows);
  }
};

// What a fit needs beside: of one thread, kept from block to block. By token: [tokens, rows].
struct FitScratch {
  RowsFit fit;
  std::vector<std::vector<float>> trial;                // signs of a sweep
  std::vector<std::vector<float>> of_signs, of_trial;   // X·s of each level
  std::vector<float> of_delta, left, step, difference;  // X·δ, X(δ − δ̂), X·moved, …
  std::vector<float> gradient, strip, scale;
  TileRoom tiles, moved, packed;
  ProductScratch product;
};

// Rows that are fitted together: as many as keep themselves and their products in a core's cache.
int64_t fit_block_rows(int64_t tokens, int64_t columns);

// delta [rows, columns]; the result is scratch->fit. No row gets a larger error than with the α
// that it began with; rows on which X says nothing keep those. If a row is bad, nothing is fitted.
void fit_rows(const FitInput& input, int64_t rows, const double* delta,
              const SignFitOptions& options, FitScratch* scratch);

}  // namespace deltad
