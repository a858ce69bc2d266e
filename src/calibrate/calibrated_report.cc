// What a CalibratedFitter says of its work: scores on held-out text, for people and the file.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "calibrate/calibrated_fitter.h"

namespace deltad {
namespace {

// Fixed in length, so that it can stand in a file's header before it is known; "nan" too.
std::string number(double value) { return fmt::format("{:9.3e}", std::clamp(value, 0.0, 9e9)); }

}  // namespace

std::map<std::string, std::string> CalibratedFitter::metadata_of(
    const CalibrationReport& report) const {
  std::string errors;
  for (const auto& [kind, error] : report.output_errors)
    errors += fmt::format("{}{} {}", errors.empty() ? "" : ", ", kind, number(error));
  std::map<std::string, std::string> said = {
      {"calibration", options_.source},
      {"calibration_tokens", std::to_string(report.fit_tokens)},
      {"held_out_tokens", std::to_string(report.held_tokens)},
      {"kl", number(report.heads.variant.kl)},
      {"kl_base", number(report.heads.base.kl)},
      {"top1", number(report.heads.variant.top1)},
      {"top1_base", number(report.heads.base.top1)},
      {"output_error", errors}};
  if (const std::string ranks = rank_text(); !ranks.empty()) said["residual_rank"] = ranks;
  return said;
}

// "16"; or what a budget gave, from the least to the most: "0 to 57". "" if there are no low-rank
// parts.
std::string CalibratedFitter::rank_text() const {
  if (!options_.budget_buys_rank)
    return options_.residual_rank > 0 ? std::to_string(options_.residual_rank) : "";
  int64_t least = std::numeric_limits<int64_t>::max(), most = 0;
  for (const auto& [weight, form] : planned_) {
    least = std::min(least, form.rank);
    most = std::max(most, form.rank);
  }
  return most > 0 ? fmt::format("{} to {}", least, most) : "";
}

std::map<std::string, std::string> CalibratedFitter::metadata() const {
  if (finished_) return metadata_of(report_);
  CalibrationReport blank = report_;
  blank.output_errors.clear();
  for (const std::string& kind : kinds_) blank.output_errors.emplace_back(kind, 0);
  return metadata_of(blank);
}

Result<std::map<std::string, std::string>> CalibratedFitter::finish() {
  for (const std::string& kind : kinds_) {
    const OutputEnergy& energy = energies_[kind];
    report_.output_errors.emplace_back(
        kind, energy.delta > 0 ? std::sqrt(energy.error / energy.delta) : 0);
  }
  finished_ = true;
  ASSIGN_OR_RETURN(base_states_, walk_->final_norm(WalkedModel::kBase, base_held_));
  ASSIGN_OR_RETURN(tune_states_, walk_->final_norm(WalkedModel::kTune, tune_held_));
  ASSIGN_OR_RETURN(const std::vector<float> of_variant,
                   walk_->final_norm(WalkedModel::kVariant, variant_held_));
  ASSIGN_OR_RETURN(report_.heads, score_heads(base_, tune_, base_states_, tune_states_, of_variant,
                                              options_.jobs));
  return metadata_of(report_);
}

Result<HeadScores> CalibratedFitter::score(const std::map<std::string, FittedMatrix>& matrices) {
  ASSIGN_OR_RETURN(Activations held, walk_->embed(WalkedModel::kVariant, set_.held));
  for (int64_t layer = 0; layer < base_.config().layers; ++layer) {
    RETURN_IF_ERROR(walk_->load_layer(layer));
    std::map<std::string, FittedMatrix> of_layer;
    for (const std::string& name : walk_->changed_matrices()) of_layer[name] = matrices.at(name);
    RETURN_IF_ERROR(walk_->set_variant(of_layer));
    RETURN_IF_ERROR(walk_->advance(WalkedModel::kVariant, &held, nullptr));
  }
  ASSIGN_OR_RETURN(const std::vector<float> of_variant,
                   walk_->final_norm(WalkedModel::kVariant, held));
  return score_heads(base_, tune_, base_states_, tune_states_, of_variant, options_.jobs);
}

Result<Matrix> CalibratedFitter::tune_states(const std::vector<TokenSequence>& sequences) {
  ASSIGN_OR_RETURN(Activations x, walk_->embed(WalkedModel::kTune, sequences));
  for (int64_t layer = 0; layer < base_.config().layers; ++layer) {
    RETURN_IF_ERROR(walk_->load_layer(layer));
    RETURN_IF_ERROR(walk_->advance(WalkedModel::kTune, &x, nullptr));
  }
  RETURN_IF_ERROR(walk_->set_variant({}));  // for the fine-tune's own norm
  Matrix states(x.tokens, base_.config().hidden);
  ASSIGN_OR_RETURN(states.values, walk_->final_norm(WalkedModel::kTune, x));
  return states;
}

}  // namespace deltad
