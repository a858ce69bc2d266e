#include "backend/weight_rows.h"

#include <fmt/core.h>

#include <string>

namespace deltad {
namespace {

Status add_signs(const std::vector<WeightSpec>& specs, const VariantContent::Signs& signs,
                 std::vector<WeightContent>& out) {
  RETURN_IF_ERROR(check_place(specs, signs.weight, 0));
  const auto id = static_cast<size_t>(signs.weight);
  const std::string& name = specs[id].parts[0].name;
  if (specs[id].kind != WeightKind::kMatrix)
    return invalid_argument(fmt::format("{} is no matrix: it cannot have signs", name));
  if (signs.levels < 1 || signs.levels > kMaxLevels)
    return invalid_argument(
        fmt::format("{} has {} levels of signs, expected 1 to {}", name, signs.levels, kMaxLevels));
  if (out[id].levels > 0) return invalid_argument(fmt::format("{} is given signs twice", name));
  out[id].levels = signs.levels;
  return {};
}

Status add_dense(const std::vector<WeightSpec>& specs, const VariantContent::Dense& dense,
                 std::vector<WeightContent>& out) {
  RETURN_IF_ERROR(check_place(specs, dense.weight, dense.part));
  const auto id = static_cast<size_t>(dense.weight), part = static_cast<size_t>(dense.part);
  const WeightSpec& spec = specs[id];
  const WeightPart& p = spec.parts[part];
  const bool fused = spec.parts.size() > 1;
  if (dense.rows < 1 || ((fused || spec.kind == WeightKind::kVector) && dense.rows != p.rows))
    return invalid_argument(fmt::format("{} has {} rows, expected {}", p.name, dense.rows, p.rows));
  out[id].replaced.resize(spec.parts.size(), false);
  if (out[id].replaced[part]) return invalid_argument(fmt::format("{} is replaced twice", p.name));
  out[id].replaced[part] = true;
  out[id].dense_rows = rows_with(spec, fused ? spec.parts.back().rows : dense.rows);
  return {};
}

Status add_low_rank(const std::vector<WeightSpec>& specs, const VariantContent::LowRank& low,
                    std::vector<WeightContent>& out) {
  RETURN_IF_ERROR(check_place(specs, low.weight, low.part));
  const auto id = static_cast<size_t>(low.weight), part = static_cast<size_t>(low.part);
  const WeightSpec& spec = specs[id];
  const std::string& name = spec.parts[part].name;
  if (spec.kind == WeightKind::kVector)
    return invalid_argument(fmt::format("{} is no matrix: it cannot have low-rank factors", name));
  if (low.rank < 1 || low.rank > kMaxLowRank)
    return invalid_argument(
        fmt::format("{} has rank {}, expected 1 to {}", name, low.rank, kMaxLowRank));
  if (!out[id].replaced.empty() && out[id].replaced[part])
    return invalid_argument(fmt::format("{} is replaced and has low-rank factors", name));
  out[id].ranks.resize(spec.parts.size(), 0);
  if (out[id].ranks[part] > 0)
    return invalid_argument(fmt::format("{} is given factors twice", name));
  out[id].ranks[part] = low.rank;
  return {};
}

}  // namespace

Status check_spec(const std::vector<WeightSpec>& specs, size_t i) {
  const WeightSpec& spec = specs[i];
  if (spec.parts.empty() || spec.columns < 1)
    return invalid_argument(fmt::format("weight {} has no parts or no columns", i));
  for (const WeightPart& part : spec.parts) {
    if (part.rows < 1) return invalid_argument(fmt::format("{} has no rows", part.name));
    if (spec.interleaved && part.rows != spec.parts[0].rows)
      return invalid_argument(fmt::format("{} has {} rows, expected {} as {}", part.name, part.rows,
                                          spec.parts[0].rows, spec.parts[0].name));
  }
  if (spec.alias >= 0 &&
      (static_cast<size_t>(spec.alias) >= i || specs[static_cast<size_t>(spec.alias)].alias >= 0))
    return invalid_argument(fmt::format(
        "weight {} stands for weight {}, expected an earlier one of its own", i, spec.alias));
  return {};
}

Status check_place(const std::vector<WeightSpec>& specs, WeightId weight, int part) {
  if (weight < 0 || static_cast<size_t>(weight) >= specs.size())
    return invalid_argument(
        fmt::format("weight {} is not one of the {} declared", weight, specs.size()));
  const size_t parts = specs[static_cast<size_t>(weight)].parts.size();
  if (part < 0 || static_cast<size_t>(part) >= parts)
    return invalid_argument(fmt::format("weight {} has {} parts, no part {}", weight, parts, part));
  return {};
}

Status check_alias(const std::vector<WeightSpec>& specs, WeightId to, WeightId from) {
  RETURN_IF_ERROR(check_place(specs, to, 0));
  RETURN_IF_ERROR(check_place(specs, from, 0));
  const WeightSpec &user = specs[static_cast<size_t>(to)], &used = specs[static_cast<size_t>(from)];
  if (user.columns != used.columns)
    return invalid_argument(fmt::format("{} cannot stand for {}: their columns differ",
                                        used.parts[0].name, user.parts[0].name));
  return {};
}

Status check_rows_of(const WeightSpec& spec, int part, int64_t rows, int64_t first, int64_t count) {
  const std::string& name = spec.parts[static_cast<size_t>(part)].name;
  if (first < 0 || count < 0 || first > rows || count > rows - first)
    return invalid_argument(
        fmt::format("{}: rows {} to {} are outside its {} rows", name, first, first + count, rows));
  if (spec.kind != WeightKind::kVector && first % 16 != 0)
    return invalid_argument(fmt::format("{}: first row {} is no multiple of 16", name, first));
  return {};
}

PartTiles tiles_of(const WeightSpec& spec, int part) {
  if (spec.interleaved) return {part, static_cast<int64_t>(spec.parts.size())};
  return {spec.part_offset(part) / 16, 1};
}

int64_t packed_row(const WeightSpec& spec, int part, int64_t r) {
  if (!spec.interleaved) return spec.part_offset(part) + r;
  const PartTiles tiles = tiles_of(spec, part);
  return (tiles.first + r / 16 * tiles.step) * 16 + r % 16;
}

int64_t rows_with(const WeightSpec& spec, int64_t last_rows) {
  return packed_row(spec, static_cast<int>(spec.parts.size()) - 1, last_rows - 1) + 1;
}

Result<std::vector<WeightContent>> content_by_weight(const std::vector<WeightSpec>& specs,
                                                     const VariantContent& content) {
  std::vector<WeightContent> out(specs.size());
  for (const auto& signs : content.signs) RETURN_IF_ERROR(add_signs(specs, signs, out));
  for (const auto& dense : content.dense) RETURN_IF_ERROR(add_dense(specs, dense, out));
  for (const auto& low : content.low_rank) RETURN_IF_ERROR(add_low_rank(specs, low, out));
  return out;
}

}  // namespace deltad
