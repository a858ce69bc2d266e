#include "backend/cpu/cpu_matrix.h"

#include <algorithm>

#include "backend/weight_rows.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/pack.h"
#include "tensor/float16.h"

namespace deltad {

using cpu::kTileRows;

CpuMatrix sized_matrix(const WeightSpec& spec, int64_t rows) {
  CpuMatrix m;
  m.rows = rows;
  m.padded_rows = cpu::padded_rows(m.rows);
  m.columns = spec.columns;
  m.padded_columns = cpu::padded_columns(m.columns);
  return m;
}

size_t storage_bytes(const CpuMatrix& m, const WeightSpec& spec) {
  if (spec.kind == WeightKind::kVector) return static_cast<size_t>(m.padded_rows) * sizeof(float);
  return static_cast<size_t>(cpu::base_elements(m.rows, m.columns)) * sizeof(uint16_t);
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
