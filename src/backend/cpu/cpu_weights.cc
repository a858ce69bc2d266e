#include "backend/cpu/cpu_weights.h"

#include <fmt/format.h>

#include <utility>

namespace deltad {

// In the order of the specs, which is the order in which the forward pass reads them.
Status CpuWeights::declare(const std::vector<WeightSpec>& specs) {
  if (!specs_.empty()) return internal_error("the weights were declared already");
  std::vector<CpuMatrix> matrices;
  std::vector<ArenaPlan::Place> places;
  ArenaPlan plan;
  for (size_t i = 0; i < specs.size(); ++i) {
    const WeightSpec& spec = specs[i];
    if (spec.parts.empty() || spec.columns < 1)
      return invalid_argument(fmt::format("weight {} has no parts or no columns", i));
    for (const WeightPart& part : spec.parts) {
      if (part.rows < 1) return invalid_argument(fmt::format("{} has no rows", part.name));
      if (spec.interleaved && part.rows != spec.parts[0].rows)
        return invalid_argument(fmt::format("{} has {} rows, expected {} as {}", part.name,
                                            part.rows, spec.parts[0].rows, spec.parts[0].name));
    }
    places.emplace_back();
    matrices.emplace_back();
    if (spec.alias >= 0) {
      if (static_cast<size_t>(spec.alias) >= i || specs[static_cast<size_t>(spec.alias)].alias >= 0)
        return invalid_argument(fmt::format(
            "weight {} stands for weight {}, expected an earlier one of its own", i, spec.alias));
      continue;
    }
    matrices.back() = sized_matrix(spec, spec.parts.back().rows);
    places.back() = plan.add(storage_bytes(matrices.back(), spec));
  }
  ASSIGN_OR_RETURN(arena_, Arena::make(plan));
  for (size_t i = 0; i < specs.size(); ++i)
    if (specs[i].alias < 0) matrices[i].storage = arena_.at(places[i]);
  specs_ = specs;
  matrices_ = std::move(matrices);
  return {};
}

Status CpuWeights::check_place(WeightId weight, int part) const {
  if (weight < 0 || static_cast<size_t>(weight) >= count())
    return invalid_argument(
        fmt::format("weight {} is not one of the {} declared", weight, count()));
  const auto parts = spec(weight).parts.size();
  if (part < 0 || static_cast<size_t>(part) >= parts)
    return invalid_argument(fmt::format("weight {} has {} parts, no part {}", weight, parts, part));
  return {};
}

Status CpuWeights::put_rows(WeightId weight, int part, int64_t first, int64_t count,
                            const uint16_t* values) {
  RETURN_IF_ERROR(check_place(weight, part));
  const WeightSpec& s = spec(weight);
  if (s.alias >= 0)
    return invalid_argument(fmt::format("{} has no memory of its own: it stands for weight {}",
                                        s.parts[static_cast<size_t>(part)].name, s.alias));
  RETURN_IF_ERROR(check_rows(s, part, s.parts[static_cast<size_t>(part)].rows, first, count));
  put_values(matrices_[static_cast<size_t>(weight)], s, part, first, count, values);
  return {};
}

const CpuMatrix& CpuWeights::matrix(WeightId weight) const {
  const WeightId alias = spec(weight).alias;
  return matrices_[static_cast<size_t>(alias >= 0 ? alias : weight)];
}

}  // namespace deltad
