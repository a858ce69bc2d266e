// How a CalibratedFitter spends a budget: what levels and low-rank parts would do for each matrix.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "calibrate/calibrated_fitter.h"
#include "delta/low_rank_part.h"
#include "delta/work_list.h"

namespace deltad {
namespace {

constexpr int kPlannedLevels = 3;  // the most that a budget gives a matrix
// The most ranks that it gives one; and, in small budgets, in ranks that an even spread would give.
constexpr int64_t kPlannedRank = 64;
constexpr int64_t kPlannedSpread = 4;
constexpr int64_t kFirstMeasuredRank = 4;  // and four times that, and so on

}  // namespace

int64_t CalibratedFitter::fixed_rank(const std::string& weight) const {
  const Shape& shape = rows_.shape(weight);
  return std::min({options_.residual_rank, shape[0], shape[1]});
}

int64_t CalibratedFitter::fixed_rank_bytes(const std::vector<MatrixCosts>& matrices) const {
  int64_t bytes = 0;
  for (const MatrixCosts& costs : matrices) bytes += fixed_rank(costs.weight) * costs.rank_bytes;
  return bytes;
}

MatrixCosts CalibratedFitter::sizes_of(const std::string& weight) const {
  const Shape& shape = rows_.shape(weight);
  return {weight,
          shape[0] * ((shape[1] + 7) / 8) + 4 * (options_.alpha_per_row ? shape[0] : 1),
          low_rank_row_bytes(shape[1], shape[0]),
          {}};
}

// Of matrices that are equal to the base's there is nothing in the file, so they count for nothing.
Result<std::vector<MatrixCosts>> CalibratedFitter::changed_sizes() const {
  std::vector<MatrixCosts> matrices;
  for (const auto& [name, tensor] : tune_.tensors())
    if (tensor.as_delta) matrices.push_back(sizes_of(name));
  std::vector<char> differs(matrices.size());
  RETURN_IF_ERROR(
      run_work_list(static_cast<int64_t>(matrices.size()), options_.jobs, [&](int64_t i) -> Status {
        const auto at = static_cast<size_t>(i);
        ASSIGN_OR_RETURN(differs[at], tune_.differs(matrices[at].weight));
        return {};
      }));
  std::vector<MatrixCosts> changed;
  for (size_t i = 0; i < matrices.size(); ++i)
    if (differs[i]) changed.push_back(std::move(matrices[i]));
  return changed;
}

Status CalibratedFitter::useless_budget(const std::vector<MatrixCosts>& matrices,
                                        const std::string& why) const {
  const int64_t factors = fixed_rank_bytes(matrices);
  return invalid_argument(fmt::format(
      "a budget of {} bytes{} {}", options_.budget->bytes_for(matrices),
      factors > 0 ? fmt::format(", of which low-rank parts take {},", factors) : "", why));
}

Status CalibratedFitter::plan() {
  ASSIGN_OR_RETURN(const std::vector<MatrixCosts> sizes, changed_sizes());
  if (sizes.empty()) return {};
  const int64_t bytes = options_.budget->bytes_for(sizes) - fixed_rank_bytes(sizes);
  int64_t least = std::numeric_limits<int64_t>::max(), rank_bytes = 0;
  for (const MatrixCosts& costs : sizes) {
    least = std::min(least, costs.level_bytes);
    rank_bytes += costs.rank_bytes;
  }
  if (bytes < least)
    return useless_budget(
        sizes,
        fmt::format("has no room for any matrix's signs: the smallest matrix's take {}", least));
  const int64_t over = options_.budget_buys_rank ? bytes - one_level_bytes(sizes) : 0;
  const int64_t most_rank =
      over <= 0 ? 0 : std::min(kPlannedRank, kPlannedSpread * (over / rank_bytes + 1));
  plan_has_rank_ = most_rank > 0;
  ASSIGN_OR_RETURN(fit_, walk_->embed(WalkedModel::kTune, set_.fit));
  std::vector<MatrixCosts> all;
  for (int64_t layer = 0; layer < base_.config().layers; ++layer) {
    RETURN_IF_ERROR(walk_->load_layer(layer));
    RETURN_IF_ERROR(capture());
    RETURN_IF_ERROR(add_costs(most_rank, &all));
    parts_.clear();
    matrices_.clear();
    if (options_.plan_progress) options_.plan_progress(layer + 1, base_.config().layers);
  }
  planned_ = plan_forms(all, bytes);
  plan_has_rank_ = std::any_of(planned_.begin(), planned_.end(),
                               [](const auto& planned) { return planned.second.rank > 0; });
  if (std::any_of(planned_.begin(), planned_.end(),
                  [](const auto& planned) { return planned.second.levels > 0; }))
    return {};
  return useless_budget(all, "gives no matrix signs: none take anything off the outputs' error");
}

Status CalibratedFitter::add_costs(int64_t most_rank, std::vector<MatrixCosts>* all) {
  const std::vector<std::string> names = walk_->changed_matrices();
  Ranks fixed, most;
  for (const std::string& name : names) {
    const Shape& shape = rows_.shape(name);
    if (const int64_t rank = fixed_rank(name); rank > 0) fixed.emplace_back(name, rank);
    if (most_rank > 0) most.emplace_back(name, std::min({most_rank, shape[0], shape[1]}));
  }
  RETURN_IF_ERROR(parts_.fit(fixed, {}));
  const size_t first = all->size();
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const MatrixFitter::LevelErrors errors,
                     matrices_.level_errors(name, kPlannedLevels, parts_));
    const auto weights = static_cast<double>(rows_.shape(name).count());
    MatrixCosts costs = sizes_of(name);
    // As a share of what Δ does, times its size: every weight of Δ counts alike. Absolute errors,
    // or those beside the whole output, starve some kinds (docs/quality.md).
    for (const double error : errors.error)
      costs.error.push_back({errors.energy > 0 ? error * weights / errors.energy : 0});
    all->push_back(std::move(costs));
  }
  if (most.empty()) return {};
  // A part of what the signs leave …
  for (int levels = 1; levels <= kPlannedLevels; ++levels) {
    MatrixFitter::Levels even;
    for (const std::string& name : names) even.emplace_back(name, levels);
    ASSIGN_OR_RETURN(const FittedMatrices signs, matrices_.fit(even, parts_, false));
    ASSIGN_OR_RETURN(const auto directions, parts_.directions(most, signs));
    for (size_t i = first; i < all->size(); ++i) {
      std::vector<double>& errors = (*all)[i].error[static_cast<size_t>(levels)];
      const double without = errors[0];
      errors.clear();
      for (const double share : directions.at((*all)[i].weight).shares_left())
        errors.push_back(without * share);
    }
  }
  // … or signs of what a part leaves of Δ, whichever leaves less; the fit, which does both in turn,
  // leaves less still.
  ASSIGN_OR_RETURN(const auto directions, parts_.directions(most, {}));
  for (size_t i = first; i < all->size(); ++i)
    RETURN_IF_ERROR(offer_rank_first(directions.at((*all)[i].weight), &(*all)[i]));
  return {};
}

// The share of the output that signs leave of what is left of it grows with the rank: it is
// measured at a few ranks, and taken to be even between.
Status CalibratedFitter::offer_rank_first(const LowRankFit& fit, MatrixCosts* costs) {
  const std::vector<double> left = fit.shares_left();
  const auto weights = static_cast<double>(rows_.shape(costs->weight).count());
  const int64_t most = fit.factors.rank;
  std::array<double, kPlannedLevels + 1> before{};  // shares of what is left, at rank `from`
  for (size_t l = 1; l < before.size(); ++l) before[l] = costs->error[l][0] / weights;
  int64_t from = 0;
  while (from < most) {
    const int64_t to = std::min(most, from == 0 ? kFirstMeasuredRank : 4 * from);
    parts_.use(costs->weight, fit, to);
    ASSIGN_OR_RETURN(const MatrixFitter::LevelErrors errors,
                     matrices_.level_errors(costs->weight, kPlannedLevels, parts_));
    for (size_t l = 1; l < before.size(); ++l) {
      const double share = errors.error[0] > 0 ? errors.error[l] / errors.error[0] : 0;
      for (int64_t rank = from + 1; rank <= to; ++rank) {
        const double part = static_cast<double>(rank - from) / static_cast<double>(to - from);
        double& error = costs->error[l][static_cast<size_t>(rank)];
        error = std::min(error, weights * left[static_cast<size_t>(rank)] *
                                    (before[l] + part * (share - before[l])));
      }
      before[l] = share;
    }
    from = to;
  }
  parts_.use(costs->weight, fit, 0);
  return {};
}

}  // namespace deltad
