// CalibratedFitter: fits signs and α of a fine-tune's matrices to the activations that calibration
// text brings into them, layer by layer, and reports on held-out text what the compression costs.
// Called by one thread; works on several.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "calibrate/calibration_text.h"
#include "calibrate/head_scores.h"
#include "calibrate/layer_walk.h"
#include "calibrate/level_plan.h"
#include "calibrate/sign_fit.h"
#include "delta/layer_fitter.h"
#include "delta/low_rank_part.h"
#include "merge/matrix.h"
#include "model/loader.h"

namespace deltad {

struct CalibrationOptions {
  std::string source;  // of the text, for people
  bool alpha_per_row = true;
  int levels = 1;
  int effort = 1;                     // sweeps over the signs; 0: α only
  std::optional<LevelBudget> budget;  // chooses levels for each matrix; `levels` is not looked at
  int64_t residual_rank = 0;          // of the low-rank part beside the signs; 0: none
  int jobs = 1;
  Progress plan_progress;  // layers that the plan of a budget has looked at
};

// On held-out text.
struct CalibrationReport {
  int64_t fit_tokens = 0, held_tokens = 0;
  HeadScores heads;
  std::vector<std::pair<std::string, double>> output_errors;  // by kind: ‖X(Δ−Δ̂)‖ / ‖XΔ‖
};

class CalibratedFitter : public LayerFitter {
 public:
  // base, tune and set outlive it.
  static Result<std::unique_ptr<CalibratedFitter>> make(const Checkpoint& base, const Tune& tune,
                                                        const CalibrationSet& set,
                                                        const CalibrationOptions& options);

  int levels(const std::string& weight) const override;
  int64_t low_rank(const std::string& weight) const override;
  Result<std::map<std::string, FittedMatrix>> fit_layer(int64_t layer) override;
  std::map<std::string, std::string> metadata() const override;
  Result<std::map<std::string, std::string>> finish() override;

  const CalibrationReport& report() const { return report_; }

  // For those who go on from what was fitted, after finish(): the scores of other α or signs on
  // held-out text, and taking them into the report; what enters the fine-tune's head, [tokens, H].
  Result<HeadScores> score(const std::map<std::string, FittedMatrix>& matrices);
  void replace_scores(const HeadScores& scores) { report_.heads = scores; }
  Result<Matrix> tune_states(const std::vector<TokenSequence>& sequences);

 private:
  struct Energy {
    double error = 0, delta = 0;
  };
  struct LowRankPart {
    std::vector<uint8_t> packed;
    AdapterFactors factors;  // as they are served
    double energy = 0;       // ‖XΔᵀ‖²
  };
  // Rows of a matrix: what signs are fitted to, which is Δ without its low-rank part.
  struct Rows {
    std::vector<double> left;
    std::vector<double> delta;  // Δ, where there is such a part
    const double* whole() const { return (delta.empty() ? left : delta).data(); }
  };
  struct Job;
  struct JobBlock;
  CalibratedFitter(const Checkpoint& base, const Tune& tune, const CalibrationSet& set,
                   const CalibrationOptions& options)
      : base_(base), tune_(tune), set_(set), options_(options) {}
  int64_t level_bytes(const Shape& matrix) const;
  // The matrices that the fine-tune changes, without errors.
  Result<std::vector<LevelCosts>> changed_sizes() const;
  int64_t low_rank_bytes(const std::vector<LevelCosts>& matrices) const;
  // kInvalidArgument if not even the smallest matrix fits beside the low-rank parts.
  Status check_budget() const;
  Status useless_budget(const std::vector<LevelCosts>& matrices, const std::string& why) const;
  // Walks all layers once to see what levels would do, and chooses.
  Status plan();
  // What enters the loaded layer's matrices, of the text that is fitted to and of what is held out.
  Status capture();
  Status capture_held();
  Result<LevelCosts> level_costs(const std::string& name) const;
  // Low-rank parts of the loaded layer's matrices, of what the signs of `fitted` leave (at first:
  // of Δ).
  Status fit_low_rank_parts(const std::map<std::string, FittedMatrix>& fitted);
  Result<LowRankPart> low_rank_part(const std::string& name,
                                    const std::vector<FittedLevel>* signs) const;
  Status not_finite(const std::string& name, int64_t row) const;
  Result<std::map<std::string, FittedMatrix>> fit_matrices(const std::vector<std::string>& names);
  class Scratch;
  // The steps of a block of rows; any thread.
  Result<std::vector<double>> delta_of(const std::string& name, int64_t first, int64_t count,
                                       std::vector<uint16_t>* base) const;
  Result<Rows> rows_of(const std::string& name, int64_t first, int64_t count,
                       std::vector<uint16_t>* base) const;
  // kInvalidArgument names the tensor and the row of a value that is not finite.
  Status fit_checked(const std::string& name, const FitInput& input, int64_t first, int64_t count,
                     const double* delta, const SignFitOptions& options, FitScratch* scratch) const;
  Status add_means(const Job& job, JobBlock* block) const;
  Status fit_block(const Job& job, JobBlock* block) const;
  Status measure_shared(const Job& job, JobBlock* block) const;
  void measure(const Job& job, const double* whole, FitScratch* scratch, JobBlock* block) const;
  void share_alpha(const Job& job) const;
  std::map<std::string, std::string> metadata_of(const CalibrationReport& report) const;

  const Checkpoint& base_;
  const Tune& tune_;
  const CalibrationSet& set_;
  const CalibrationOptions options_;
  Isa isa_ = Isa::kScalar;
  std::unique_ptr<LayerWalk> walk_;
  std::map<std::string, int> planned_;  // levels, under a budget
  Activations fit_, base_held_, tune_held_, variant_held_;
  std::array<FitInput, kLayerInputs> inputs_;
  std::array<RowProducts, kLayerInputs> held_inputs_;
  // What low-rank parts need of the loaded layer: X, and those that there are.
  std::array<Matrix, kLayerInputs> low_rank_inputs_;
  std::map<std::string, LowRankPart> low_rank_parts_;
  std::map<std::string, Energy> held_;  // of the loaded layer's matrices
  std::vector<std::string> kinds_;      // of matrices that the fine-tune may change
  std::map<std::string, Energy> energies_;
  CalibrationReport report_;
  bool finished_ = false;
  std::vector<float> base_states_, tune_states_;  // that enter the head, of held-out text
  mutable Mutex mutex_;
  mutable std::vector<std::unique_ptr<FitScratch>> idle_scratch_ GUARDED_BY(mutex_);
};

}  // namespace deltad
