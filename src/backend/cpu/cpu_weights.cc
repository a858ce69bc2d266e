#include "backend/cpu/cpu_weights.h"

#include <fmt/core.h>

#include <utility>

#include "backend/weight_rows.h"

namespace deltad {

// In the order of the specs, which is the order in which the forward pass reads them.
Status CpuWeights::declare(const std::vector<WeightSpec>& specs) {
  if (!specs_.empty()) return internal_error("the weights were declared already");
  std::vector<CpuMatrix> matrices;
  std::vector<ArenaPlan::Place> places;
  ArenaPlan plan;
  for (size_t i = 0; i < specs.size(); ++i) {
    const WeightSpec& spec = specs[i];
    RETURN_IF_ERROR(check_spec(specs, i));
    places.emplace_back();
    matrices.emplace_back();
    if (spec.alias >= 0) continue;
    matrices.back() = sized_matrix(spec, rows_with(spec, spec.parts.back().rows));
    places.back() = plan.add(storage_bytes(matrices.back(), spec));
  }
  ASSIGN_OR_RETURN(arena_, Arena::make(plan));
  for (size_t i = 0; i < specs.size(); ++i)
    if (specs[i].alias < 0) matrices[i].storage = arena_.at(places[i]);
  specs_ = specs;
  matrices_ = std::move(matrices);
  return {};
}

Status CpuWeights::put_rows(WeightId weight, int part, int64_t first, int64_t count,
                            const uint16_t* values) {
  RETURN_IF_ERROR(check_place(specs_, weight, part));
  const WeightSpec& s = spec(weight);
  if (s.alias >= 0)
    return invalid_argument(fmt::format("{} has no memory of its own: it stands for weight {}",
                                        s.parts[static_cast<size_t>(part)].name, s.alias));
  RETURN_IF_ERROR(check_rows_of(s, part, s.parts[static_cast<size_t>(part)].rows, first, count));
  put_values(matrices_[static_cast<size_t>(weight)], s, part, first, count, values);
  return {};
}

const CpuMatrix& CpuWeights::matrix(WeightId weight) const {
  const WeightId alias = spec(weight).alias;
  return matrices_[static_cast<size_t>(alias >= 0 ? alias : weight)];
}

}  // namespace deltad
