#include "backend/cpu/cpu_matrix.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/pack.h"
#include "tensor/float16.h"

namespace deltad {

using cpu::kTileRows;

CpuMatrix sized_matrix(const WeightSpec& spec, int64_t last_rows) {
  CpuMatrix m;
  const int last = static_cast<int>(spec.parts.size()) - 1;
  m.rows = packed_row(spec, last, last_rows - 1) + 1;
  m.padded_rows = cpu::padded_rows(m.rows);
  m.columns = spec.columns;
  m.padded_columns = cpu::padded_columns(m.columns);
  return m;
}

size_t storage_bytes(const CpuMatrix& m, const WeightSpec& spec) {
  if (spec.kind == WeightKind::kVector) return static_cast<size_t>(m.padded_rows) * sizeof(float);
  return static_cast<size_t>(cpu::base_elements(m.rows, m.columns)) * sizeof(uint16_t);
}

int64_t packed_row(const WeightSpec& spec, int part, int64_t r) {
  if (!spec.interleaved) return spec.part_offset(part) + r;
  const auto parts = static_cast<int64_t>(spec.parts.size());
  return (r / kTileRows * parts + part) * kTileRows + r % kTileRows;
}

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

void put_values(const CpuMatrix& m, const WeightSpec& spec, int part, int64_t first, int64_t count,
                const uint16_t* values) {
  if (spec.kind == WeightKind::kVector) {
    auto* out = m.storage.as<float>() + packed_row(spec, part, first);
    for (int64_t i = 0; i < count; ++i) out[i] = bf16_to_f32(values[i]);
    return;
  }
  for (int64_t r = 0; r < count; r += kTileRows)
    cpu::pack_base_tile(
        m.storage.as<uint16_t>() + packed_row(spec, part, first + r) * m.padded_columns,
        values + r * spec.columns, std::min<int64_t>(kTileRows, count - r), spec.columns);
}

}  // namespace deltad
