#include "backend/cpu/cpu_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/pack.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

using cpu::kTileRows;

// Where row r of a part lies among all rows of the weight.
int64_t packed_row(const WeightSpec& spec, int part, int64_t r) {
  if (!spec.interleaved) return spec.part_offset(part) + r;
  const auto parts = static_cast<int64_t>(spec.parts.size());
  return (r / kTileRows * parts + part) * kTileRows + r % kTileRows;
}

// The shape of a matrix or vector of `spec`, without memory. rows of its only or last part may
// differ from the spec's.
CpuMatrix shape_of(const WeightSpec& spec, int64_t last_rows) {
  CpuMatrix m;
  const int last = static_cast<int>(spec.parts.size()) - 1;
  m.rows = packed_row(spec, last, last_rows - 1) + 1;
  m.padded_rows = cpu::padded_rows(m.rows);
  m.columns = spec.columns;
  m.padded_columns = cpu::padded_columns(m.columns);
  return m;
}

size_t storage_bytes(const WeightSpec& spec, const CpuMatrix& m) {
  return spec.kind == WeightKind::kVector
             ? static_cast<size_t>(m.padded_rows) * sizeof(float)
             : static_cast<size_t>(cpu::base_elements(m.rows, m.columns)) * 2;
}

// With memory, zero-filled.
Result<CpuMatrix> make_matrix(const WeightSpec& spec, int64_t last_rows) {
  CpuMatrix m = shape_of(spec, last_rows);
  ASSIGN_OR_RETURN(m.storage, Buffer::cpu(storage_bytes(spec, m)));
  return m;
}

size_t level_bits_bytes(const CpuMatrix& m) {
  return static_cast<size_t>(cpu::sign_words(m.rows, m.columns)) * sizeof(uint64_t);
}
size_t level_alpha_bytes(const CpuMatrix& m) {
  return static_cast<size_t>(m.padded_rows) * sizeof(float);
}

Status put_values(const CpuMatrix& m, const WeightSpec& spec, int part, int64_t first,
                  int64_t count, const uint16_t* values) {
  if (spec.kind == WeightKind::kVector) {
    auto* out = m.storage.as<float>() + packed_row(spec, part, first);
    for (int64_t i = 0; i < count; ++i) out[i] = bf16_to_f32(values[i]);
    return {};
  }
  for (int64_t r = 0; r < count; r += kTileRows)
    cpu::pack_base_tile(
        m.storage.as<uint16_t>() + packed_row(spec, part, first + r) * m.padded_columns,
        values + r * spec.columns, std::min<int64_t>(kTileRows, count - r), spec.columns);
  return {};
}

// Rows [first, first+count) must lie in a part of `rows` rows; a matrix is filled tile by tile.
Status check_rows(const WeightSpec& spec, int part, int64_t rows, int64_t first, int64_t count) {
  const std::string& name = spec.parts[static_cast<size_t>(part)].name;
  if (first < 0 || count < 0 || first > rows || count > rows - first)
    return invalid_argument(
        fmt::format("{}: rows {} to {} are outside its {} rows", name, first, first + count, rows));
  if (spec.kind != WeightKind::kVector && first % kTileRows != 0)
    return invalid_argument(
        fmt::format("{}: first row {} is no multiple of {}", name, first, kTileRows));
  return {};
}

Status check_place(const CpuWeights& weights, WeightId weight, int part) {
  if (weight < 0 || static_cast<size_t>(weight) >= weights.count())
    return invalid_argument(
        fmt::format("weight {} is not one of the {} declared", weight, weights.count()));
  const auto parts = weights.spec(weight).parts.size();
  if (part < 0 || static_cast<size_t>(part) >= parts)
    return invalid_argument(fmt::format("weight {} has {} parts, no part {}", weight, parts, part));
  return {};
}

}  // namespace

Status CpuWeights::declare(const std::vector<WeightSpec>& specs) {
  if (!specs_.empty()) return internal_error("the weights were declared already");
  std::vector<CpuMatrix> matrices;
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
    if (spec.alias >= 0) {
      if (static_cast<size_t>(spec.alias) >= i || specs[static_cast<size_t>(spec.alias)].alias >= 0)
        return invalid_argument(fmt::format(
            "weight {} stands for weight {}, expected an earlier one of its own", i, spec.alias));
      matrices.emplace_back();
      continue;
    }
    ASSIGN_OR_RETURN(CpuMatrix m, make_matrix(spec, spec.parts.back().rows));
    matrices.push_back(std::move(m));
  }
  specs_ = specs;
  matrices_ = std::move(matrices);
  return {};
}

Status CpuWeights::put_rows(WeightId weight, int part, int64_t first, int64_t count,
                            const uint16_t* values) {
  RETURN_IF_ERROR(check_place(*this, weight, part));
  const WeightSpec& s = spec(weight);
  if (s.alias >= 0)
    return invalid_argument(fmt::format("{} has no memory of its own: it stands for weight {}",
                                        s.parts[static_cast<size_t>(part)].name, s.alias));
  RETURN_IF_ERROR(check_rows(s, part, s.parts[static_cast<size_t>(part)].rows, first, count));
  return put_values(matrices_[static_cast<size_t>(weight)], s, part, first, count, values);
}

const CpuMatrix& CpuWeights::matrix(WeightId weight) const {
  const WeightId alias = spec(weight).alias;
  return matrices_[static_cast<size_t>(alias >= 0 ? alias : weight)];
}

size_t CpuWeights::bytes() const {
  size_t sum = 0;
  for (const CpuMatrix& m : matrices_) sum += m.storage.bytes();
  return sum;
}

CpuVariantWeights::CpuVariantWeights(const CpuWeights& base)
    : base_(base), deltas_(base.count()), replaced_(base.count()) {
  for (CpuWeightDelta& d : deltas_) d.levels.reserve(kMaxLevels);
}

size_t CpuVariantWeights::bytes_of(const CpuWeights& base,
                                   const std::vector<WeightChange>& changes) {
  size_t sum = 0;
  for (const WeightChange& change : changes) {
    const WeightSpec& spec = base.spec(change.weight);
    if (change.levels > 0) {
      const CpuMatrix& m = base.matrix(change.weight);
      sum += static_cast<size_t>(change.levels) * (level_bits_bytes(m) + level_alpha_bytes(m));
    }
    if (change.dense_rows > 0) sum += storage_bytes(spec, shape_of(spec, change.dense_rows));
  }
  return sum;
}

// The level, made with all below it on first use.
Result<const CpuSignLevel*> CpuVariantWeights::level_of(WeightId weight, int level) {
  if (level < 0 || level >= kMaxLevels)
    return invalid_argument(fmt::format("level {} of {}: at most {} levels are supported", level,
                                        base_.spec(weight).parts[0].name, kMaxLevels));
  const WeightSpec& spec = base_.spec(weight);
  if (spec.kind != WeightKind::kMatrix)
    return invalid_argument(
        fmt::format("{} is no matrix: it cannot have signs", spec.parts[0].name));
  const CpuMatrix& m = base_.matrix(weight);
  MutexLock lock(mutex_);
  std::vector<CpuSignLevel>& levels = deltas_[static_cast<size_t>(weight)].levels;
  while (levels.size() <= static_cast<size_t>(level)) {
    CpuSignLevel made;
    ASSIGN_OR_RETURN(Buffer bits, Buffer::cpu(level_bits_bytes(m)));
    ASSIGN_OR_RETURN(Buffer alpha, Buffer::cpu(level_alpha_bytes(m)));
    made.bits = std::make_shared<Buffer>(std::move(bits));
    made.alpha = std::make_shared<Buffer>(std::move(alpha));
    levels.push_back(std::move(made));
  }
  return &levels[static_cast<size_t>(level)];
}

Status CpuVariantWeights::put_sign_rows(WeightId weight, int part, int level, int64_t first,
                                        int64_t count, const uint8_t* bits) {
  RETURN_IF_ERROR(check_place(base_, weight, part));
  const WeightSpec& spec = base_.spec(weight);
  RETURN_IF_ERROR(check_rows(spec, part, spec.parts[static_cast<size_t>(part)].rows, first, count));
  ASSIGN_OR_RETURN(const CpuSignLevel* to, level_of(weight, level));
  const int64_t row_bytes = (spec.columns + 7) / 8;
  const int64_t tile_words = cpu::padded_columns(spec.columns) / 4;
  for (int64_t r = 0; r < count; r += kTileRows)
    cpu::pack_sign_tile(
        to->bits->as<uint64_t>() + packed_row(spec, part, first + r) / kTileRows * tile_words,
        bits + r * row_bytes, std::min<int64_t>(kTileRows, count - r), spec.columns);
  return {};
}

Status CpuVariantWeights::put_alpha(WeightId weight, int part, int level, const float* alpha) {
  RETURN_IF_ERROR(check_place(base_, weight, part));
  ASSIGN_OR_RETURN(const CpuSignLevel* to, level_of(weight, level));
  const WeightSpec& spec = base_.spec(weight);
  const int64_t rows = spec.parts[static_cast<size_t>(part)].rows;
  for (int64_t r = 0; r < rows; r += kTileRows)
    std::memcpy(to->alpha->as<float>() + packed_row(spec, part, r), alpha + r,
                static_cast<size_t>(std::min<int64_t>(kTileRows, rows - r)) * sizeof(float));
  return {};
}

Status CpuVariantWeights::begin_dense(WeightId weight, int part, int64_t rows) {
  RETURN_IF_ERROR(check_place(base_, weight, part));
  const WeightSpec& spec = base_.spec(weight);
  const WeightPart& p = spec.parts[static_cast<size_t>(part)];
  const bool fused = spec.parts.size() > 1;
  if (rows < 1 || ((fused || spec.kind == WeightKind::kVector) && rows != p.rows))
    return invalid_argument(fmt::format("{} has {} rows, expected {}", p.name, rows, p.rows));
  MutexLock lock(mutex_);
  std::shared_ptr<CpuMatrix>& replaced = replaced_[static_cast<size_t>(weight)];
  if (replaced) {
    if (fused) return {};
    return invalid_argument(fmt::format("{} is replaced twice", p.name));
  }
  ASSIGN_OR_RETURN(CpuMatrix made, make_matrix(spec, fused ? spec.parts.back().rows : rows));
  if (fused) {  // the parts that are not replaced keep the base's values
    const Buffer& from = base_.matrix(weight).storage;
    std::memcpy(made.storage.data(), from.data(), from.bytes());
  }
  replaced = std::make_shared<CpuMatrix>(std::move(made));
  deltas_[static_cast<size_t>(weight)].dense = replaced;
  return {};
}

Status CpuVariantWeights::put_dense_rows(WeightId weight, int part, int64_t first, int64_t count,
                                         const uint16_t* values) {
  RETURN_IF_ERROR(check_place(base_, weight, part));
  std::shared_ptr<CpuMatrix> to;
  {
    MutexLock lock(mutex_);
    to = replaced_[static_cast<size_t>(weight)];
  }
  const WeightSpec& spec = base_.spec(weight);
  const WeightPart& p = spec.parts[static_cast<size_t>(part)];
  if (!to) return internal_error(fmt::format("{}: rows before begin_dense", p.name));
  RETURN_IF_ERROR(check_rows(spec, part, spec.parts.size() > 1 ? p.rows : to->rows, first, count));
  return put_values(*to, spec, part, first, count, values);
}

void CpuVariantWeights::alias_dense(WeightId to, WeightId from) {
  MutexLock lock(mutex_);
  aliases_.emplace_back(to, from);
}

Status CpuVariantWeights::finish() {
  MutexLock lock(mutex_);
  for (const auto& [to, from] : aliases_) {
    RETURN_IF_ERROR(check_place(base_, to, 0));
    RETURN_IF_ERROR(check_place(base_, from, 0));
    if (base_.spec(to).columns != base_.spec(from).columns)
      return invalid_argument(fmt::format("{} cannot stand for {}: their columns differ",
                                          base_.spec(from).parts[0].name,
                                          base_.spec(to).parts[0].name));
    deltas_[static_cast<size_t>(to)].dense = deltas_[static_cast<size_t>(from)].dense;
  }
  aliases_.clear();
  return {};
}

size_t CpuVariantWeights::bytes() const {
  size_t sum = 0;
  for (size_t i = 0; i < deltas_.size(); ++i) {
    for (const CpuSignLevel& level : deltas_[i].levels)
      sum += level.bits->bytes() + level.alpha->bytes();
    if (replaced_[i]) sum += replaced_[i]->storage.bytes();
  }
  return sum;
}

int64_t CpuVariantWeights::dense_rows(WeightId weight) const {
  const CpuWeightDelta& d = delta(weight);
  return d.dense ? d.dense->rows : 0;
}

}  // namespace deltad
