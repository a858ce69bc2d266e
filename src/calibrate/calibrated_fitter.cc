#include "calibrate/calibrated_fitter.h"

#include <algorithm>
#include <utility>

#include "delta/work_list.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

// How often low-rank parts and signs are fitted in turn, each to what the other leaves.
constexpr int kLowRankRounds = 4;

std::string kind_of(const std::string& weight) {
  const std::string module = weight.substr(0, weight.rfind('.'));
  return module.substr(module.rfind('.') + 1);
}

Matrix as_matrix(const LayerInputs::Values& values, int64_t tokens) {
  Matrix out(tokens, values.columns);
  if (values.type == DType::kF32)
    std::copy_n(values.x.as<float>(), out.values.size(), out.values.begin());
  else
    std::transform(values.x.as<uint16_t>(), values.x.as<uint16_t>() + out.values.size(),
                   out.values.begin(), [](uint16_t v) { return bf16_to_f32(v); });
  return out;
}

}  // namespace

Result<std::unique_ptr<CalibratedFitter>> CalibratedFitter::make(
    const Checkpoint& base, const Tune& tune, const CalibrationSet& set,
    const CalibrationOptions& options) {
  ASSIGN_OR_RETURN(const Isa isa, choose_isa(""));
  std::unique_ptr<CalibratedFitter> made(new CalibratedFitter(base, tune, set, options, isa));
  ASSIGN_OR_RETURN(made->walk_, LayerWalk::make(base, tune, options.jobs));
  if (options.budget) RETURN_IF_ERROR(made->plan());
  ASSIGN_OR_RETURN(made->fit_, made->walk_->embed(WalkedModel::kTune, set.fit));
  ASSIGN_OR_RETURN(made->base_held_, made->walk_->embed(WalkedModel::kBase, set.held));
  ASSIGN_OR_RETURN(made->tune_held_, made->walk_->embed(WalkedModel::kTune, set.held));
  ASSIGN_OR_RETURN(made->variant_held_, made->walk_->embed(WalkedModel::kVariant, set.held));
  for (const auto& [name, tensor] : tune.tensors())
    if (tensor.as_delta &&
        std::find(made->kinds_.begin(), made->kinds_.end(), kind_of(name)) == made->kinds_.end())
      made->kinds_.push_back(kind_of(name));
  made->report_.fit_tokens = set.fit_tokens();
  made->report_.held_tokens = set.held_tokens();
  return made;
}

int CalibratedFitter::levels(const std::string& weight) const {
  return options_.budget ? planned_.at(weight).levels : options_.levels;
}

int64_t CalibratedFitter::low_rank(const std::string& weight) const {
  return options_.budget_buys_rank ? planned_.at(weight).rank : fixed_rank(weight);
}

Status CalibratedFitter::capture() {
  LayerInputs inputs;
  RETURN_IF_ERROR(walk_->advance(WalkedModel::kTune, &fit_, &inputs));
  return run_work_list(kLayerInputs, options_.jobs, [&](int64_t i) -> Status {
    LayerInputs::Values& values = inputs.of[static_cast<size_t>(i)];
    const auto of = static_cast<LayerInput>(i);
    if (has_low_rank()) parts_.set_input(of, as_matrix(values, fit_.tokens));
    ASSIGN_OR_RETURN(FitInput input,
                     FitInput::make(isa_, values.x.data(), fit_.tokens, values.columns));
    matrices_.set_input(of, std::move(input));
    values.x = Buffer();
    return {};
  });
}

Status CalibratedFitter::capture_held() {
  LayerInputs held;
  RETURN_IF_ERROR(walk_->advance(WalkedModel::kTune, &tune_held_, &held));
  return run_work_list(kLayerInputs, options_.jobs, [&](int64_t i) -> Status {
    LayerInputs::Values& values = held.of[static_cast<size_t>(i)];
    ASSIGN_OR_RETURN(RowProducts input, RowProducts::make(isa_, values.x.data(), tune_held_.tokens,
                                                          values.columns, values.columns));
    matrices_.set_held(static_cast<LayerInput>(i), std::move(input));
    values.x = Buffer();
    return {};
  });
}

Result<FittedMatrices> CalibratedFitter::fit_layer(int64_t layer) {
  RETURN_IF_ERROR(walk_->load_layer(layer));
  RETURN_IF_ERROR(capture());
  RETURN_IF_ERROR(capture_held());
  walk_->release_tuned();
  RETURN_IF_ERROR(walk_->advance(WalkedModel::kBase, &base_held_, nullptr));
  MatrixFitter::Levels all, beside_parts;
  Ranks ranks;
  for (const std::string& name : walk_->changed_matrices()) {
    all.emplace_back(name, levels(name));
    if (low_rank(name) == 0) continue;
    ranks.emplace_back(name, low_rank(name));
    beside_parts.push_back(all.back());
  }
  RETURN_IF_ERROR(parts_.fit(ranks, {}));
  ASSIGN_OR_RETURN(FittedMatrices fitted, matrices_.fit(all, parts_));
  for (int round = 1; round < kLowRankRounds && !ranks.empty(); ++round) {
    RETURN_IF_ERROR(parts_.fit(ranks, fitted));
    ASSIGN_OR_RETURN(FittedMatrices again, matrices_.fit(beside_parts, parts_));
    for (auto& [name, matrix] : again) fitted[name] = std::move(matrix);
  }
  for (const auto& [name, matrix] : fitted) energies_[kind_of(name)].add(matrices_.held(name));
  parts_.clear();
  matrices_.clear();
  RETURN_IF_ERROR(walk_->set_variant(fitted));
  RETURN_IF_ERROR(walk_->advance(WalkedModel::kVariant, &variant_held_, nullptr));
  return fitted;
}

}  // namespace deltad
