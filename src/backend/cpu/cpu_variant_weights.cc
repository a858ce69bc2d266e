#include "backend/cpu/cpu_variant_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/pack.h"

namespace deltad {

using cpu::kTileRows;

// Where everything will be.
struct CpuVariantWeights::Plan {
  struct Weight {
    int levels = 0;
    std::vector<bool> replaced;  // [parts]; empty: no dense replacement
    CpuMatrix dense;             // without storage
    std::array<ArenaPlan::Place, kMaxLevels> alpha_at, bits_at;
    ArenaPlan::Place dense_at;
  };
  std::vector<Weight> weights;  // index: WeightId
  ArenaPlan arena;
};

Result<CpuVariantWeights::Plan> CpuVariantWeights::plan(const CpuWeights& base,
                                                        const VariantContent& content) {
  Plan plan;
  plan.weights.resize(base.count());
  for (const VariantContent::Signs& signs : content.signs) {
    RETURN_IF_ERROR(base.check_place(signs.weight, 0));
    const WeightSpec& spec = base.spec(signs.weight);
    Plan::Weight& weight = plan.weights[static_cast<size_t>(signs.weight)];
    if (spec.kind != WeightKind::kMatrix)
      return invalid_argument(
          fmt::format("{} is no matrix: it cannot have signs", spec.parts[0].name));
    if (signs.levels < 1 || signs.levels > kMaxLevels)
      return invalid_argument(fmt::format("{} has {} levels of signs, expected 1 to {}",
                                          spec.parts[0].name, signs.levels, kMaxLevels));
    if (weight.levels > 0)
      return invalid_argument(fmt::format("{} is given signs twice", spec.parts[0].name));
    weight.levels = signs.levels;
  }
  for (const VariantContent::Dense& dense : content.dense) {
    RETURN_IF_ERROR(base.check_place(dense.weight, dense.part));
    const WeightSpec& spec = base.spec(dense.weight);
    Plan::Weight& weight = plan.weights[static_cast<size_t>(dense.weight)];
    const auto part = static_cast<size_t>(dense.part);
    const WeightPart& p = spec.parts[part];
    const bool fused = spec.parts.size() > 1;
    if (dense.rows < 1 || ((fused || spec.kind == WeightKind::kVector) && dense.rows != p.rows))
      return invalid_argument(
          fmt::format("{} has {} rows, expected {}", p.name, dense.rows, p.rows));
    weight.replaced.resize(spec.parts.size(), false);
    if (weight.replaced[part]) return invalid_argument(fmt::format("{} is replaced twice", p.name));
    weight.replaced[part] = true;
    weight.dense = sized_matrix(spec, fused ? spec.parts.back().rows : dense.rows);
  }
  for (size_t id = 0; id < plan.weights.size(); ++id) {
    Plan::Weight& weight = plan.weights[id];
    const CpuMatrix& m = base.matrix(static_cast<WeightId>(id));
    for (size_t l = 0; l < static_cast<size_t>(weight.levels); ++l) {
      weight.alpha_at[l] = plan.arena.add(static_cast<size_t>(m.padded_rows) * sizeof(float));
      weight.bits_at[l] = plan.arena.add(static_cast<size_t>(cpu::sign_words(m.rows, m.columns)) *
                                         sizeof(uint64_t));
    }
    if (!weight.replaced.empty())
      weight.dense_at =
          plan.arena.add(storage_bytes(weight.dense, base.spec(static_cast<WeightId>(id))));
  }
  return plan;
}

Result<size_t> CpuVariantWeights::bytes_of(const CpuWeights& base, const VariantContent& content) {
  ASSIGN_OR_RETURN(const Plan planned, plan(base, content));
  return planned.arena.bytes();
}

Result<std::unique_ptr<CpuVariantWeights>> CpuVariantWeights::make(const CpuWeights& base,
                                                                   const VariantContent& content) {
  ASSIGN_OR_RETURN(const Plan planned, plan(base, content));
  std::unique_ptr<CpuVariantWeights> variant(new CpuVariantWeights(base));
  ASSIGN_OR_RETURN(variant->arena_, Arena::make(planned.arena));
  variant->place(planned);
  return variant;
}

void CpuVariantWeights::place(const Plan& plan) {
  for (size_t id = 0; id < plan.weights.size(); ++id) {
    const Plan::Weight& weight = plan.weights[id];
    CpuWeightDelta& delta = deltas_[id];
    for (size_t l = 0; l < static_cast<size_t>(weight.levels); ++l)
      delta.levels.push_back({arena_.at(weight.bits_at[l]), arena_.at(weight.alpha_at[l])});
    if (weight.replaced.empty()) continue;
    CpuMatrix dense = weight.dense;
    dense.storage = arena_.at(weight.dense_at);
    // The parts that are not replaced keep the base's values.
    if (std::find(weight.replaced.begin(), weight.replaced.end(), false) != weight.replaced.end()) {
      const MemoryPiece& from = base_.matrix(static_cast<WeightId>(id)).storage;
      std::memcpy(dense.storage.data(), from.data(), from.bytes());
    }
    delta.dense = std::make_shared<const CpuMatrix>(dense);
  }
}

Result<const CpuSignLevel*> CpuVariantWeights::level_of(WeightId weight, int part,
                                                        int level) const {
  RETURN_IF_ERROR(base_.check_place(weight, part));
  const std::vector<CpuSignLevel>& levels = delta(weight).levels;
  if (level < 0 || static_cast<size_t>(level) >= levels.size())
    return invalid_argument(
        fmt::format("level {} of {}: this variant was made with {} levels", level,
                    base_.spec(weight).parts[static_cast<size_t>(part)].name, levels.size()));
  return &levels[static_cast<size_t>(level)];
}

Status CpuVariantWeights::put_sign_rows(WeightId weight, int part, int level, int64_t first,
                                        int64_t count, const uint8_t* bits) {
  ASSIGN_OR_RETURN(const CpuSignLevel* to, level_of(weight, part, level));
  const WeightSpec& spec = base_.spec(weight);
  RETURN_IF_ERROR(check_rows(spec, part, spec.parts[static_cast<size_t>(part)].rows, first, count));
  const int64_t row_bytes = (spec.columns + 7) / 8;
  const int64_t tile_words = cpu::padded_columns(spec.columns) / 4;
  for (int64_t r = 0; r < count; r += kTileRows)
    cpu::pack_sign_tile(
        to->bits.as<uint64_t>() + packed_row(spec, part, first + r) / kTileRows * tile_words,
        bits + r * row_bytes, std::min<int64_t>(kTileRows, count - r), spec.columns);
  return {};
}

Status CpuVariantWeights::put_alpha(WeightId weight, int part, int level, const float* alpha) {
  ASSIGN_OR_RETURN(const CpuSignLevel* to, level_of(weight, part, level));
  const WeightSpec& spec = base_.spec(weight);
  const int64_t rows = spec.parts[static_cast<size_t>(part)].rows;
  for (int64_t r = 0; r < rows; r += kTileRows)
    std::memcpy(to->alpha.as<float>() + packed_row(spec, part, r), alpha + r,
                static_cast<size_t>(std::min<int64_t>(kTileRows, rows - r)) * sizeof(float));
  return {};
}

Status CpuVariantWeights::put_dense_rows(WeightId weight, int part, int64_t first, int64_t count,
                                         const uint16_t* values) {
  RETURN_IF_ERROR(base_.check_place(weight, part));
  const WeightSpec& spec = base_.spec(weight);
  const WeightPart& p = spec.parts[static_cast<size_t>(part)];
  const CpuMatrix* to = delta(weight).dense.get();
  if (to == nullptr)
    return invalid_argument(fmt::format("{}: this variant was made without values for it", p.name));
  RETURN_IF_ERROR(check_rows(spec, part, spec.parts.size() > 1 ? p.rows : to->rows, first, count));
  put_values(*to, spec, part, first, count, values);
  return {};
}

void CpuVariantWeights::alias_dense(WeightId to, WeightId from) {
  MutexLock lock(mutex_);
  aliases_.emplace_back(to, from);
}

Status CpuVariantWeights::finish() {
  MutexLock lock(mutex_);
  for (const auto& [to, from] : aliases_) {
    RETURN_IF_ERROR(base_.check_place(to, 0));
    RETURN_IF_ERROR(base_.check_place(from, 0));
    if (base_.spec(to).columns != base_.spec(from).columns)
      return invalid_argument(fmt::format("{} cannot stand for {}: their columns differ",
                                          base_.spec(from).parts[0].name,
                                          base_.spec(to).parts[0].name));
    deltas_[static_cast<size_t>(to)].dense = deltas_[static_cast<size_t>(from)].dense;
  }
  aliases_.clear();
  // Filling has made nearly all of it resident; this is for what nobody wrote to.
  return arena_.populate();
}

int64_t CpuVariantWeights::dense_rows(WeightId weight) const {
  const CpuWeightDelta& d = delta(weight);
  return d.dense ? d.dense->rows : 0;
}

}  // namespace deltad
