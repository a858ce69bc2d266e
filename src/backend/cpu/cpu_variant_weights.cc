#include "backend/cpu/cpu_variant_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "backend/weight_rows.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/pack.h"
#include "tensor/float16.h"

namespace deltad {

using cpu::kTileRows;

namespace {

// Fills in where the tiles and the ranks of each part lie, B in the order of the weight's tiles.
// ranks: by part. Returns the values of B.
int64_t lay_out(const WeightSpec& spec, const std::vector<int64_t>& ranks, CpuLowRank* low) {
  constexpr int64_t kPadding = cpu::kLowRankPadding;
  low->a_stride = (spec.columns + kPadding - 1) / kPadding * kPadding;
  std::vector<cpu::LowRankPart>& parts = low->parts;
  parts.resize(spec.parts.size());
  int64_t values = 0, pair = 0;
  int32_t rank = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    parts[p].rank = static_cast<int32_t>(ranks[p]);
    pair += cpu::low_rank_tile_values(parts[p].rank);
  }
  for (size_t p = 0; p < parts.size(); ++p) {
    cpu::LowRankPart& part = parts[p];
    const int64_t of_tile = cpu::low_rank_tile_values(part.rank);
    part.tiles = static_cast<int32_t>(WeightSpec::pad(spec.parts[p].rows) / kTileRows);
    part.first_tile =
        static_cast<int32_t>(spec.interleaved ? static_cast<int64_t>(p)
                                              : spec.part_offset(static_cast<int>(p)) / kTileRows);
    part.shift = spec.interleaved ? 1 : 0;
    part.first = rank;
    part.b =
        spec.interleaved ? (p == 0 ? 0 : cpu::low_rank_tile_values(parts.front().rank)) : values;
    part.b_step = spec.interleaved ? pair : of_tile;
    rank += part.rank;
    values += part.tiles * of_tile;
  }
  return values;
}

int32_t ranks_of(const CpuLowRank& low) {
  return low.parts.empty() ? 0 : low.parts.back().first + low.parts.back().rank;
}

// All that the linear layer reads before the weight's first output lies in one piece.
struct Together {
  const char* at;
  int64_t bytes;
};
Together read_first(const cpu::LowRank& low) {
  const auto* from = reinterpret_cast<const char*>(low.parts);
  const auto* end = reinterpret_cast<const char*>(low.a + low.ranks * low.a_stride);
  return {from, end - from};
}

}  // namespace

// Where everything will be.
struct CpuVariantWeights::Plan {
  struct Weight {
    WeightContent content;
    CpuMatrix dense;  // without storage
    std::array<ArenaPlan::Place, kMaxLevels> alpha_at, bits_at;
    ArenaPlan::Place dense_at;
    CpuLowRank low_rank;  // without storage; no parts: none
    int64_t b_values = 0;
    ArenaPlan::Place used_parts_at, scale_at, a_at, b_at;
  };
  std::vector<Weight> weights;  // index: WeightId
  ArenaPlan arena;
};

Result<CpuVariantWeights::Plan> CpuVariantWeights::plan(const CpuWeights& base,
                                                        const VariantContent& content) {
  ASSIGN_OR_RETURN(std::vector<WeightContent> contents, content_by_weight(base.specs(), content));
  Plan plan;
  plan.weights.resize(contents.size());
  for (size_t id = 0; id < contents.size(); ++id) {
    Plan::Weight& weight = plan.weights[id];
    const WeightSpec& spec = base.spec(static_cast<WeightId>(id));
    const CpuMatrix& m = base.matrix(static_cast<WeightId>(id));
    weight.content = std::move(contents[id]);
    for (size_t l = 0; l < static_cast<size_t>(weight.content.levels); ++l) {
      weight.alpha_at[l] = plan.arena.add(static_cast<size_t>(m.padded_rows) * sizeof(float));
      weight.bits_at[l] = plan.arena.add(static_cast<size_t>(cpu::sign_words(m.rows, m.columns)) *
                                         sizeof(uint64_t));
    }
    if (!weight.content.ranks.empty()) {
      weight.b_values = lay_out(spec, weight.content.ranks, &weight.low_rank);
      const CpuLowRank& low = weight.low_rank;
      const auto ranks = static_cast<size_t>(ranks_of(low));
      weight.used_parts_at = plan.arena.add(low.parts.size() * sizeof(cpu::LowRankPart));
      weight.scale_at = plan.arena.add(ranks * sizeof(float));
      weight.a_at = plan.arena.add(ranks * static_cast<size_t>(low.a_stride) * sizeof(uint16_t));
      weight.b_at = plan.arena.add(static_cast<size_t>(weight.b_values) * sizeof(uint16_t));
    }
    if (!weight.content.replaced.empty()) {
      weight.dense = sized_matrix(spec, weight.content.dense_rows);
      weight.dense_at = plan.arena.add(storage_bytes(weight.dense, spec));
    }
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
    for (size_t l = 0; l < static_cast<size_t>(weight.content.levels); ++l)
      delta.levels.push_back({arena_.at(weight.bits_at[l]), arena_.at(weight.alpha_at[l])});
    if (weight.content.replaced.empty()) continue;
    CpuMatrix dense = weight.dense;
    dense.storage = arena_.at(weight.dense_at);
    // The parts that are not replaced keep the base's values.
    if (std::find(weight.content.replaced.begin(), weight.content.replaced.end(), false) !=
        weight.content.replaced.end()) {
      const MemoryPiece& from = base_.matrix(static_cast<WeightId>(id)).storage;
      std::memcpy(dense.storage.data(), from.data(), from.bytes());
    }
    delta.dense = std::make_shared<const CpuMatrix>(dense);
  }
  place_low_rank(plan);
}

// From the last weight to the first, for each to know what comes next.
void CpuVariantWeights::place_low_rank(const Plan& plan) {
  Together next{};
  for (size_t id = plan.weights.size(); id-- > 0;) {
    const Plan::Weight& weight = plan.weights[id];
    if (weight.low_rank.parts.empty()) continue;
    CpuLowRank& low = low_rank_[id] = weight.low_rank;
    low.used_parts = arena_.at(weight.used_parts_at);
    low.scale = arena_.at(weight.scale_at);
    low.a = arena_.at(weight.a_at);
    low.b = arena_.at(weight.b_at);
    auto* used = low.used_parts.as<cpu::LowRankPart>();
    const auto end = std::copy_if(low.parts.begin(), low.parts.end(), used,
                                  [](const cpu::LowRankPart& part) { return part.rank > 0; });
    deltas_[id].low_rank = {ranks_of(low),
                            static_cast<int32_t>(end - used),
                            used,
                            low.scale.as<float>(),
                            low.a.as<uint16_t>(),
                            low.a_stride,
                            low.b.as<uint16_t>(),
                            next.at,
                            next.bytes};
    next = read_first(deltas_[id].low_rank);
  }
}

void CpuVariantWeights::prefetch_after(WeightId weight) const {
  const auto first = static_cast<size_t>(weight) + 1;
  const size_t end = std::min(first + 2, deltas_.size());
  for (size_t id = first; id < end; ++id)
    for (size_t line = 0; line < sizeof(CpuWeightDelta); line += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(&deltas_[id]) + line);
}

Result<const CpuSignLevel*> CpuVariantWeights::level_of(WeightId weight, int part,
                                                        int level) const {
  RETURN_IF_ERROR(check_place(base_.specs(), weight, part));
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
  RETURN_IF_ERROR(
      check_rows_of(spec, part, spec.parts[static_cast<size_t>(part)].rows, first, count));
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
  RETURN_IF_ERROR(check_place(base_.specs(), weight, part));
  const WeightSpec& spec = base_.spec(weight);
  const WeightPart& p = spec.parts[static_cast<size_t>(part)];
  const CpuMatrix* to = delta(weight).dense.get();
  if (to == nullptr)
    return invalid_argument(fmt::format("{}: this variant was made without values for it", p.name));
  RETURN_IF_ERROR(
      check_rows_of(spec, part, spec.parts.size() > 1 ? p.rows : to->rows, first, count));
  put_values(*to, spec, part, first, count, values);
  return {};
}

Status CpuVariantWeights::put_low_rank(WeightId weight, int part, float scale, const float* a,
                                       const float* b) {
  RETURN_IF_ERROR(check_place(base_.specs(), weight, part));
  const WeightSpec& spec = base_.spec(weight);
  const auto p = static_cast<size_t>(part);
  const CpuLowRank& low = low_rank_[static_cast<size_t>(weight)];
  if (low.parts.empty() || low.parts[p].rank == 0)
    return invalid_argument(fmt::format("{}: this variant was made without low-rank factors for it",
                                        spec.parts[p].name));
  const cpu::LowRankPart& ranks = low.parts[p];
  for (int32_t k = 0; k < ranks.rank; ++k) {
    low.scale.as<float>()[ranks.first + k] = scale;
    uint16_t* to = low.a.as<uint16_t>() + (ranks.first + k) * low.a_stride;
    for (int64_t c = 0; c < spec.columns; ++c) to[c] = f32_to_bf16(a[k * spec.columns + c]);
  }
  for (int64_t r = 0; r < spec.parts[p].rows; ++r) {
    uint16_t* to =
        low.b.as<uint16_t>() + ranks.b + r / kTileRows * ranks.b_step + r % kTileRows * 2;
    for (int32_t k = 0; k < ranks.rank; ++k)
      to[k / 2 * 2 * kTileRows + k % 2] = f32_to_bf16(b[r * ranks.rank + k]);
  }
  return {};
}

void CpuVariantWeights::alias_weight(WeightId to, WeightId from) {
  MutexLock lock(mutex_);
  aliases_.emplace_back(to, from);
}

Status CpuVariantWeights::finish(const std::atomic<bool>*) {
  MutexLock lock(mutex_);
  for (const auto& [to, from] : aliases_) {
    RETURN_IF_ERROR(check_alias(base_.specs(), to, from));
    deltas_[static_cast<size_t>(to)].dense = deltas_[static_cast<size_t>(from)].dense;
    deltas_[static_cast<size_t>(to)].low_rank = deltas_[static_cast<size_t>(from)].low_rank;
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
