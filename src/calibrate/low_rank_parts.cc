#include "calibrate/low_rank_parts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "delta/low_rank_part.h"
#include "delta/sign_rows.h"
#include "delta/work_list.h"

namespace deltad {
namespace {

constexpr double kLowRankDamping = 20;  // in mean energies of a column of X (docs/quality.md)

// Enough for a plan, which wants to know how much directions take off, not these themselves.
constexpr RandomizedSvdOptions kRough{8, 1, 1};

// visit(i, weight, rank) of all of them.
template <typename Visit>
Status for_each(const Ranks& ranks, int jobs, Visit visit) {
  return run_work_list(static_cast<int64_t>(ranks.size()), jobs, [&](int64_t i) {
    const auto& [name, rank] = ranks[static_cast<size_t>(i)];
    return visit(static_cast<size_t>(i), name, rank);
  });
}

}  // namespace

void LowRankParts::clear() {
  parts_.clear();
  inputs_ = {};
}

const LowRankPart* LowRankParts::find(const std::string& weight) const {
  const auto it = parts_.find(weight);
  return it == parts_.end() ? nullptr : &it->second;
}

Status LowRankParts::fit(const Ranks& ranks, const FittedMatrices& fitted) {
  std::vector<LowRankPart> made(ranks.size());
  RETURN_IF_ERROR(
      for_each(ranks, jobs_, [&](size_t i, const std::string& name, int64_t rank) -> Status {
        ASSIGN_OR_RETURN(const LowRankFit fit, fit_to(name, rank, fitted, {}));
        const Shape& shape = rows_.shape(name);
        made[i].energy = fit.energy;
        made[i].packed = pack_low_rank(fit.factors);
        auto factors = unpack_low_rank(made[i].packed.data(), rank, shape[1], shape[0]);
        if (!factors.ok()) return failed(name, factors.status());
        made[i].factors = std::move(*factors);
        return {};
      }));
  size_t i = 0;
  for (const auto& [name, rank] : ranks) parts_[name] = std::move(made[i++]);
  return {};
}

Result<std::map<std::string, LowRankFit>> LowRankParts::directions(
    const Ranks& most, const FittedMatrices& fitted) const {
  std::vector<LowRankFit> fits(most.size());
  RETURN_IF_ERROR(
      for_each(most, jobs_, [&](size_t i, const std::string& name, int64_t rank) -> Status {
        ASSIGN_OR_RETURN(fits[i], fit_to(name, rank, fitted, kRough));
        return {};
      }));
  std::map<std::string, LowRankFit> out;
  size_t i = 0;
  for (const auto& [name, rank] : most) out[name] = std::move(fits[i++]);
  return out;
}

void LowRankParts::use(const std::string& weight, const LowRankFit& directions, int64_t rank) {
  if (rank == 0) {
    parts_.erase(weight);
    return;
  }
  const AdapterFactors& all = directions.factors;
  LowRankPart& part = parts_[weight];
  part.packed.clear();
  part.energy = directions.energy;
  AdapterFactors& some = part.factors;
  some = {rank, all.inputs, all.outputs, all.scale, {}, {}};
  some.a.assign(all.a.begin(), all.a.begin() + rank * all.inputs);
  for (int64_t r = 0; r < all.outputs; ++r) {
    const auto row = all.b.begin() + r * all.rank;
    some.b.insert(some.b.end(), row, row + rank);
  }
}

Result<LowRankFit> LowRankParts::fit_to(const std::string& name, int64_t rank,
                                        const FittedMatrices& fitted,
                                        const RandomizedSvdOptions& svd) const {
  ASSIGN_OR_RETURN(const Matrix left, left_by(name, fitted));
  const Matrix& x = inputs_[static_cast<size_t>(input_of(name))];
  auto fit = fit_low_rank(x, left, rank, kLowRankDamping, svd);
  if (!fit.ok()) return failed(name, fit.status());
  return fit;
}

Result<Matrix> LowRankParts::left_by(const std::string& name, const FittedMatrices& fitted) const {
  const Shape& shape = rows_.shape(name);
  const int64_t columns = shape[1], row_bytes = (columns + 7) / 8, step = block_rows(shape);
  const auto signs = fitted.find(name);
  Matrix left(shape[0], columns);
  std::vector<uint16_t> base;
  for (int64_t first = 0; first < shape[0]; first += step) {
    const int64_t count = std::min(step, shape[0] - first);
    ASSIGN_OR_RETURN(std::vector<double> delta, rows_.delta(name, first, count, &base));
    for (int64_t r = 0; r < count; ++r) {
      double* row = delta.data() + r * columns;
      // The fit of signs looks for these too, but it comes later.
      if (!std::isfinite(row_sums(row, columns).squares)) return rows_.not_finite(name, first + r);
      if (signs == fitted.end()) continue;
      for (const FittedLevel& level : signs->second.levels) {
        const size_t at = level.alpha.size() == 1 ? 0 : static_cast<size_t>(first + r);
        add_signs(level.bits.data() + (first + r) * row_bytes, columns,
                  -static_cast<double>(level.alpha[at]), row);
      }
    }
    std::transform(delta.begin(), delta.end(), left.row(first),
                   [](double v) { return static_cast<float>(v); });
  }
  return left;
}

Status LowRankParts::failed(const std::string& name, const Status& status) const {
  return status.in(fmt::format("{}: tensor '{}': its low-rank part", rows_.path(), name));
}

}  // namespace deltad
