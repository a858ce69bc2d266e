// CalibratedFitter: fits signs and α of a fine-tune's matrices to the activations that calibration
// text brings into them, layer by layer, and reports on held-out text what the compression costs.
// Called by one thread; works on several.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/calibration_text.h"
#include "calibrate/head_scores.h"
#include "calibrate/layer_walk.h"
#include "calibrate/level_plan.h"
#include "calibrate/low_rank_parts.h"
#include "calibrate/matrix_fitter.h"
#include "calibrate/tune_rows.h"
#include "delta/layer_fitter.h"
#include "merge/matrix.h"
#include "model/loader.h"

namespace deltad {

struct CalibrationOptions {
  std::string source;  // of the text, for people
  bool alpha_per_row = true;
  int levels = 1;
  int effort = 1;                     // sweeps over the signs; 0: α only
  std::optional<LevelBudget> budget;  // chooses levels for each matrix; `levels` is not looked at
  bool budget_buys_rank = false;      // and the rank of a low-rank part beside the signs
  int64_t residual_rank = 0;          // of these parts, if no budget buys it; 0: none
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
  CalibratedFitter(const Checkpoint& base, const Tune& tune, const CalibrationSet& set,
                   const CalibrationOptions& options, Isa isa)
      : base_(base),
        tune_(tune),
        set_(set),
        options_(options),
        isa_(isa),
        rows_(base, tune),
        parts_(rows_, options.jobs),
        matrices_(rows_, isa, {options.alpha_per_row, options.effort, options.jobs}) {}
  // What enters the loaded layer's matrices, of the text that is fitted to and of what is held out.
  Status capture();
  Status capture_held();
  // Whether a matrix may get a low-rank part, for which X is kept in fp32.
  bool has_low_rank() const { return options_.residual_rank > 0 || plan_has_rank_; }

  // Under a budget (calibrated_plan.cc). Walks all layers once to see what levels and low-rank
  // parts would do, and chooses.
  Status plan();
  // The matrices that the fine-tune changes, without errors.
  Result<std::vector<MatrixCosts>> changed_sizes() const;
  MatrixCosts sizes_of(const std::string& weight) const;
  // Of the loaded layer's matrices, with ranks up to `most_rank` of what is bought.
  Status add_costs(int64_t most_rank, std::vector<MatrixCosts>* all);
  Status offer_rank_first(const LowRankFit& directions, MatrixCosts* costs);
  int64_t fixed_rank(const std::string& weight) const;
  // Of all matrices' low-rank parts, where their rank is given.
  int64_t fixed_rank_bytes(const std::vector<MatrixCosts>& matrices) const;
  Status useless_budget(const std::vector<MatrixCosts>& matrices, const std::string& why) const;

  std::map<std::string, std::string> metadata_of(const CalibrationReport& report) const;
  std::string rank_text() const;

  const Checkpoint& base_;
  const Tune& tune_;
  const CalibrationSet& set_;
  const CalibrationOptions options_;
  bool plan_has_rank_ = false;  // while planning: whether it may have
  const Isa isa_;
  const TuneRows rows_;
  LowRankParts parts_;
  MatrixFitter matrices_;
  std::unique_ptr<LayerWalk> walk_;
  FormPlan planned_;  // under a budget
  Activations fit_, base_held_, tune_held_, variant_held_;
  std::vector<std::string> kinds_;  // of matrices that the fine-tune may change
  std::map<std::string, OutputEnergy> energies_;
  CalibrationReport report_;
  bool finished_ = false;
  std::vector<float> base_states_, tune_states_;  // that enter the head, of held-out text
};

}  // namespace deltad
