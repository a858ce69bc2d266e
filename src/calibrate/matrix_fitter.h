// MatrixFitter: fits the signs and α of one layer's matrices, in blocks of rows on several threads,
// to the activations that enter the layer, and measures on held-out ones what that leaves. Called
// by one thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "calibrate/fit_input.h"
#include "calibrate/layer_walk.h"
#include "calibrate/low_rank_parts.h"
#include "calibrate/row_products.h"
#include "calibrate/sign_fit.h"
#include "calibrate/tune_rows.h"

namespace deltad {

struct OutputEnergy {
  double error = 0, delta = 0;  // ‖X(Δ − Δ̂)‖², ‖XΔ‖²

  void add(const OutputEnergy& other) {
    error += other.error;
    delta += other.delta;
  }
};

struct MatrixFitOptions {
  bool alpha_per_row = true;
  int sweeps = 1;
  int jobs = 1;
};

class MatrixFitter {
 public:
  // rows outlives it.
  MatrixFitter(const TuneRows& rows, Isa isa, const MatrixFitOptions& options)
      : rows_(rows), isa_(isa), options_(options) {}

  // What enters the matrices of the layer that is fitted next; held: of a few rows, to measure.
  // Without that nothing is measured.
  void set_input(LayerInput input, FitInput x) {
    inputs_[static_cast<size_t>(input)] = std::move(x);
  }
  void set_held(LayerInput input, RowProducts x) {
    held_inputs_[static_cast<size_t>(input)] = std::move(x);
  }
  // Forgets these.
  void clear();

  using Levels = std::vector<std::pair<std::string, int>>;  // of weights
  // Beside the parts that the matrices have. Without sweeps: those are what it begins with.
  Result<FittedMatrices> fit(const Levels& levels, const LowRankParts& parts, bool sweeps = true);
  // Of what fit() gave last for the matrix, on held-out text.
  const OutputEnergy& held(const std::string& weight) const { return held_.at(weight); }
  // ‖X(Δ − Δ̂)‖² with 0, 1, … `most` levels beside its part, signs being those that a fit begins
  // with, and without either.
  struct LevelErrors {
    std::vector<double> error;  // [most + 1]
    double energy = 0;          // ‖XΔ‖²
  };
  Result<LevelErrors> level_errors(const std::string& weight, int most,
                                   const LowRankParts& parts) const;

 private:
  // Rows of a matrix: what signs are fitted to, which is Δ without its low-rank part.
  struct Rows {
    std::vector<double> left;
    std::vector<double> delta;  // Δ, where there is such a part
    const double* whole() const { return (delta.empty() ? left : delta).data(); }
  };
  struct Job;
  struct JobBlock;
  class Scratch;

  // The steps of a block of rows; any thread.
  Result<Rows> rows_of(const std::string& name, const LowRankPart* part, int64_t first,
                       int64_t count, std::vector<uint16_t>* base) const;
  // kInvalidArgument names the tensor and the row of a value that is not finite.
  Status fit_checked(const std::string& name, const FitInput& input, int64_t first, int64_t count,
                     const double* delta, const SignFitOptions& options, FitScratch* scratch) const;
  Status add_means(const Job& job, JobBlock* block) const;
  Status fit_block(const Job& job, JobBlock* block) const;
  Status measure_shared(const Job& job, JobBlock* block) const;
  void measure(const Job& job, const double* whole, FitScratch* scratch, JobBlock* block) const;
  void share_alpha(const Job& job) const;
  const FitInput& input(const std::string& weight) const {
    return inputs_[static_cast<size_t>(input_of(weight))];
  }

  const TuneRows& rows_;
  const Isa isa_;
  const MatrixFitOptions options_;
  std::array<FitInput, kLayerInputs> inputs_;
  std::array<RowProducts, kLayerInputs> held_inputs_;
  std::map<std::string, OutputEnergy> held_;
  mutable Mutex mutex_;
  mutable std::vector<std::unique_ptr<FitScratch>> idle_scratch_ GUARDED_BY(mutex_);
};

}  // namespace deltad
